#include <shoal/runtime/options.h>

#include <fmt/format.h>

#include <atomic>
#include <stdexcept>

namespace shoal {

const char* method_name(StartMethod method) {
  switch (method) {
    case StartMethod::spawn:
      return "spawn";
    case StartMethod::forkserver:
      return "forkserver";
    case StartMethod::fork:
      return "fork";
  }
  return "?";
}

namespace {
std::atomic<StartMethod> default_method{StartMethod::forkserver};
}

void set_start_method(StartMethod method) noexcept { default_method = method; }
StartMethod get_start_method() noexcept { return default_method; }
std::vector<StartMethod> get_all_start_methods() {
  return {StartMethod::forkserver, StartMethod::spawn, StartMethod::fork};
}

void refuse_captures(StartMethod method) {
  throw std::invalid_argument(
      fmt::format("the start method is {}, but a callable with captures exists in this process only: use "
                  "StartMethod::fork, or pass a function and arguments",
                  method_name(method)));
}

}  // namespace shoal
