#include <shoal/runtime/failure.h>

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace shoal {
namespace {

std::string describe_process(const ProcessIdentity& who) {
  if (who.rank < 0) return fmt::format("process '{}' (pid {})", who.name, who.pid);
  return fmt::format("rank {} (pid {})", who.rank, who.pid);
}

const char* describe_phase(ChildPhase phase, StartMethod method) {
  switch (phase) {
    case ChildPhase::kMade:
      return method == StartMethod::spawn ? " before it reached shoal::init" : " right after it was forked";
    case ChildPhase::kStarting:
      return " while it was starting";
    case ChildPhase::kInFunction:
      return "";
    case ChildPhase::kReturned:
      return " after its function had ended";
    case ChildPhase::kProgram:
      return "";
  }
  return "";
}

/// The record is of this end, and not of a fault that was mended before.
bool tells_of(const CrashReport& crash, const ExitStatus& status) {
  if (crash.kind == CrashKind::kTerminate) return status.signal == SIGABRT;
  return crash.kind == CrashKind::kSignal && status.signal == crash.signal;
}

std::string describe_signal(const FailureFacts& facts) {
  const CrashReport& crash = facts.crash;
  std::string text = fmt::format("was killed by {}{}", signal_name(facts.status.signal),
                                 describe_phase(crash.phase, facts.who.start_method));
  if (facts.oom_killed) return text + ": the kernel's OOM killer was at work in this cgroup";
  if (!tells_of(crash, facts.status)) return text;
  if (crash.kind == CrashKind::kTerminate)
    return crash.type.empty()
               ? text + ": std::terminate was called"
               : fmt::format("{}: std::terminate was called for {}: {}", text, crash.type, crash.message);
  if (!crash.message.empty()) {
    std::string_view message = crash.message;
    while (message.ends_with('\n')) message.remove_suffix(1);
    return fmt::format("{}: {}", text, message);
  }
  const bool has_address = crash.code > 0 && (crash.signal == SIGSEGV || crash.signal == SIGBUS);
  return has_address ? fmt::format("{} at address 0x{:x}", text, crash.address) : text;
}

std::string describe_end(const FailureFacts& facts) {
  const ExitStatus& status = facts.status;
  if (status.unknown)
    return "ended, and how is not known: the fork server died, SIGCHLD is ignored, or other code of the program waits "
           "for any child";
  if (status.signal) return describe_signal(facts);
  return fmt::format("exited with code {}{}", status.code,
                     facts.crash.phase == ChildPhase::kInFunction
                         ? " before its function had returned"
                         : describe_phase(facts.crash.phase, facts.who.start_method));
}

ExceptionSummary outermost(const FailureFacts& facts) {
  if (!facts.raised.empty()) return facts.raised.front();
  // Of std::terminate, and of a write to a read-only tensor.
  if (tells_of(facts.crash, facts.status) && !facts.crash.type.empty()) return {facts.crash.type, facts.crash.message};
  return {};
}

std::string describe_raised(const FailureFacts& facts) {
  const ExceptionSummary outer = outermost(facts);
  return fmt::format("raised {}: {}", outer.type, outer.message);
}

/// What calls the user's function in a started process, and what calls main().
bool is_caller(std::string_view function) {
  // Names of templates have their result before them, those of lambdas their function: looked for anywhere.
  constexpr std::array<std::string_view, 11> kCallers{"std::__invoke",      "std::invoke<",
                                                      "std::apply<",        "std::__apply_impl<",
                                                      "8CallWith",          "9TypedTask",
                                                      "shoal::CallWith<",   "shoal::TypedTask<",
                                                      "shoal::traced_call", "(anonymous namespace)::make_call(",
                                                      "__libc_start"};
  return function == "_start" || std::ranges::any_of(kCallers, [&](std::string_view caller) {
           return function.find(caller) != std::string_view::npos;
         });
}

/// Leaves what the function did: not how the exception was raised, nor what calls functions in started processes.
void trim(std::vector<StackFrame>& frames) {
  constexpr std::array<std::string_view, 5> kAbove{"__cxa_throw", "__cxa_rethrow", "std::rethrow_exception",
                                                   "_Unwind_Resume_or_Rethrow", "std::terminate()"};
  // Only at the top: what the function does may raise and catch as well.
  const std::ptrdiff_t top = std::min<std::ptrdiff_t>(8, std::ptrdiff_t(frames.size()));
  const auto first =
      std::find_if(std::make_reverse_iterator(frames.begin() + top), frames.rend(), [&](const StackFrame& frame) {
        return std::ranges::any_of(
            kAbove, [&](std::string_view name) { return std::string_view(frame.function).starts_with(name); });
      });
  frames.erase(frames.begin(), first.base());
  const auto below =
      std::ranges::find_if(frames, [](const StackFrame& frame) { return frame.function == "shoal_traced_call"; });
  frames.erase(below, frames.end());
  // The last one stays: the compiler may have put the user's function into what calls it.
  while (frames.size() > 1 && is_caller(frames.back().function)) frames.pop_back();
}

void append_indented(std::string& text, std::string_view lines, std::string_view margin) {
  while (!lines.empty()) {
    const auto end = std::min(lines.find('\n'), lines.size());
    text += fmt::format("{}{}\n", margin, lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
}

}  // namespace

ProcessFailed::ProcessFailed(std::shared_ptr<const FailureFacts> facts, const std::string& what_happened,
                             LaterFailures later)
    : Error(fmt::format("{} {}", describe_process(facts->who), what_happened)),
      facts_(std::move(facts)),
      later_(std::move(later)) {
  const ExceptionSummary outer = outermost(*facts_);
  type_ = outer.type;
  message_ = outer.message;
  if (facts_->raised.size() > 1) nested_.assign(facts_->raised.begin() + 1, facts_->raised.end());
}

const std::string& ProcessFailed::name() const noexcept { return facts_->who.name; }
int ProcessFailed::rank() const noexcept { return facts_->who.rank; }
pid_t ProcessFailed::pid() const noexcept { return facts_->who.pid; }
StartMethod ProcessFailed::start_method() const noexcept { return facts_->who.start_method; }
int ProcessFailed::signal() const noexcept { return facts_->status.signal; }
std::string ProcessFailed::signal_name() const { return signal() ? shoal::signal_name(signal()) : ""; }
const std::string& ProcessFailed::exception_type() const noexcept { return type_; }
const std::string& ProcessFailed::exception_message() const noexcept { return message_; }
const std::string& ProcessFailed::stderr_tail() const noexcept { return facts_->crash.stderr_tail; }
bool ProcessFailed::oom_killed() const noexcept { return facts_->oom_killed; }
std::int64_t ProcessFailed::time() const noexcept { return facts_->crash.time; }

std::vector<StackFrame> ProcessFailed::stack_trace() const {
  const CrashReport& crash = facts_->crash;
  const bool raised = !facts_->raised.empty() && crash.kind == CrashKind::kException;
  if (!raised && !tells_of(crash, facts_->status)) return {};
  std::vector<StackFrame> frames = symbolize(crash.frames);
  trim(frames);
  return frames;
}

std::string ProcessFailed::report() const {
  std::string text = fmt::format("{}\n", what());
  text += fmt::format("  it was '{}', started by {}\n", name(), method_name(start_method()));
  for (const auto& [type, message] : nested_) text += fmt::format("  because of {}: {}\n", type, message);
  int number = 0;
  for (const StackFrame& frame : stack_trace()) text += fmt::format("  #{} {}\n", number++, frame.text());
  if (!stderr_tail().empty()) {
    text += "  the end of its stderr:\n";
    append_indented(text, stderr_tail(), "    | ");
  }
  for (const auto& later : later_) {
    text += "  later:\n";
    append_indented(text, later->report(), "    ");
  }
  return text;
}

ProcessRaised::ProcessRaised(std::shared_ptr<const FailureFacts> facts, LaterFailures later)
    : ProcessFailed(facts, describe_raised(*facts), std::move(later)) {}

ProcessExited::ProcessExited(std::shared_ptr<const FailureFacts> facts, LaterFailures later)
    : ProcessFailed(facts, describe_end(*facts), std::move(later)) {}

std::optional<int> ProcessExited::exit_code() const noexcept {
  const ExitStatus& status = facts().status;
  if (status.signal || status.unknown) return std::nullopt;
  return status.code;
}

std::shared_ptr<const ProcessFailed> make_failure(std::shared_ptr<const FailureFacts> facts) {
  if (!facts->raised.empty()) return std::make_shared<ProcessRaised>(std::move(facts));
  return std::make_shared<ProcessExited>(std::move(facts));
}

std::shared_ptr<const ProcessFailed> make_root_cause(const ProcessFailed& failure, LaterFailures later) {
  if (dynamic_cast<const ProcessRaised*>(&failure))
    return std::make_shared<ProcessRaised>(failure.facts_, std::move(later));
  return std::make_shared<ProcessExited>(failure.facts_, std::move(later));
}

void throw_failure(const ProcessFailed& failure) {
  if (const auto* raised = dynamic_cast<const ProcessRaised*>(&failure)) throw *raised;
  throw dynamic_cast<const ProcessExited&>(failure);
}

}  // namespace shoal
