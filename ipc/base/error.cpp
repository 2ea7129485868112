#include <shoal/ipc/error.h>

#include <cxxabi.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/text/quantity_text.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace shoal {
namespace {

std::array<std::atomic<ExceptionDescriber>, 8> describers{};

std::string system_message(const std::string& tried, int number, const std::string& remedy) {
  const char* name = ::strerrorname_np(number);
  return fmt::format("{}: {} ({}){}{}", tried, ::strerrordesc_np(number), name ? name : "?", remedy.empty() ? "" : "; ",
                     remedy);
}

}  // namespace

SystemError::SystemError(const std::string& what_was_tried, int error_number, const std::string& remedy)
    : Error(system_message(what_was_tried, error_number, remedy)), error_number_(error_number) {}

OutOfSharedMemory::OutOfSharedMemory(std::size_t asked, std::size_t in_use, std::size_t allowed,
                                     const std::string& limit)
    : Error(fmt::format("out of shared memory: {} asked, {} in use, {} allowed by {}", long_bytes(asked),
                        long_bytes(in_use), long_bytes(allowed), limit)),
      asked_(asked),
      in_use_(in_use),
      allowed_(allowed) {}

std::string describe(const std::exception& error) {
  std::string text;
  for (auto& entry : describers)
    if (ExceptionDescriber describer = entry.load(std::memory_order_acquire);  // A1: pairs with R1
        describer && describer(error, text))
      return text;
  return error.what();
}

void register_exception_describer(ExceptionDescriber describer) {
  for (auto& entry : describers) {
    ExceptionDescriber expected = nullptr;
    // R1: what the describer's library initialized is visible to A1.
    if (entry.compare_exchange_strong(expected, describer, std::memory_order_acq_rel) || expected == describer) return;
  }
}

std::string type_name(const std::exception& error) {
  const char* mangled = typeid(error).name();
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : mangled;
}

}  // namespace shoal
