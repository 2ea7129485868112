#include <shoal/internal/runtime/crash/raised.h>

#include <cxxabi.h>
#include <shoal/internal/runtime/crash/handler.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

namespace shoal {
namespace {

ExceptionSummary describe_foreign_exception() {
  int status = 0;
  const char* mangled = abi::__cxa_current_exception_type()->name();
  char* name = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  ExceptionSummary summary{status == 0 ? name : mangled, "(not derived from std::exception)"};
  std::free(name);
  return summary;
}

/// std::throw_with_nested throws a class of the library's own around the one that was given.
std::string without_nesting(std::string type) {
  constexpr std::string_view kNesting = "std::_Nested_exception<";
  if (type.starts_with(kNesting) && type.ends_with('>'))
    type = type.substr(kNesting.size(), type.size() - kNesting.size() - 1);
  return type;
}

void describe_into(std::vector<ExceptionSummary>& chain) {
  constexpr std::size_t kDeepest = 32;
  try {
    throw;
  } catch (const std::exception& error) {
    chain.push_back({without_nesting(type_name(error)), describe(error)});
    if (chain.size() == kDeepest) return;
    try {
      std::rethrow_if_nested(error);
    } catch (...) {
      describe_into(chain);
    }
  } catch (...) {
    chain.push_back(describe_foreign_exception());
  }
}

}  // namespace

std::vector<ExceptionSummary> describe_current_exception() {
  std::vector<ExceptionSummary> chain;
  describe_into(chain);
  return chain;
}

RaisedException take_current_exception() {
  RaisedException raised;
  // First, since describing it throws again.
  raised.time = std::chrono::steady_clock::now().time_since_epoch().count();
  if (CrashRecord* record = own_crash_record()) {
    if (record->frame_count.load() != 0) raised.time = record->time;  // of the throw
    raised.frames = read_crash_record(*record).frames;
    record->frame_count = 0;  // it is not how this process ends
  }
  raised.chain = describe_current_exception();
  return raised;
}

std::shared_ptr<const ProcessFailed> make_failure(const ProcessIdentity& who, const RaisedException& raised) {
  auto facts = std::make_shared<FailureFacts>();
  facts->who = who;
  facts->raised = raised.chain;
  facts->crash.phase = ChildPhase::kInFunction;
  facts->crash.kind = CrashKind::kException;
  facts->crash.time = raised.time;
  facts->crash.frames = raised.frames;
  return make_failure(std::move(facts));
}

}  // namespace shoal
