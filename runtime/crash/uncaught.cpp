#include <shoal/internal/runtime/crash/uncaught.h>

#include <shoal/runtime/failure.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace shoal {
namespace {

std::terminate_handler uncaught_before = nullptr;

void on_uncaught() {
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
  if (uncaught_before) uncaught_before();
  std::abort();
}

}  // namespace

void report_uncaught_failures() {
  if (const auto before = std::set_terminate(&on_uncaught); before != &on_uncaught) uncaught_before = before;
}

}  // namespace shoal
