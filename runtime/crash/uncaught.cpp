#include <shoal/internal/runtime/crash/uncaught.h>

#include <shoal/runtime/failure.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace shoal {
namespace {

std::terminate_handler terminate_before = nullptr;

void on_terminate() {
  try {
    if (const auto current = std::current_exception()) std::rethrow_exception(current);
  } catch (const ProcessFailed& failure) {
    try {
      std::fprintf(stderr, "shoal: %s", failure.report().c_str());
    } catch (const std::exception&) {
      // No memory: the handler from before tells at least of the exception.
    }
  } catch (...) {
    // Of others there is no more to tell than that handler does.
  }
  if (terminate_before) terminate_before();
  std::abort();
}

}  // namespace

void report_uncaught_failures() {
  if (const auto before = std::set_terminate(&on_terminate); before != &on_terminate) terminate_before = before;
}

}  // namespace shoal
