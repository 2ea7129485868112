// The exceptions by which a child's failure reaches its parent.
#pragma once

#include <shoal/internal/runtime/crash/record.h>
#include <shoal/internal/runtime/crash/symbols.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/exit_status.h>
#include <shoal/runtime/options.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// The process that an error is about.
struct ProcessIdentity {
  std::string name;                                    ///< as given in the options that it was started with
  int rank = -1;                                       ///< -1: none
  pid_t pid = 0;                                       ///< 0: not known
  StartMethod start_method = StartMethod::forkserver;  ///< how it was started
};

/// Type and text of an exception in another process.
struct ExceptionSummary {
  /// The type's name, demangled.
  std::string type, message;  ///< its what()
};

/// All that the parent knows about a failed process.
struct FailureFacts {
  ProcessIdentity who;  ///< the process that failed
  ExitStatus status;    ///< how it ended
  /// What its function threw: the outermost exception, then those nested in it (std::throw_with_nested).
  std::vector<ExceptionSummary> raised;
  CrashReport crash;        ///< what it left behind: stack, signal, the end of stderr
  bool oom_killed = false;  ///< ended by SIGKILL while the kernel counted an OOM kill in this cgroup
};

/// A started process failed. what() says in one line which process and why; report() says everything. Copies are the
/// same failure. Threads: any.
class ProcessFailed : public Error {
 public:
  const std::string& name() const noexcept;   ///< as given in the options that it was started with
  int rank() const noexcept;                  ///< -1 if it had none
  pid_t pid() const noexcept;                 ///< no longer of a living process
  StartMethod start_method() const noexcept;  ///< how it was started

  /// The signal that ended the process; 0 and "" if none did.
  int signal() const noexcept;
  std::string signal_name() const;  ///< such as "SIGSEGV"
  /// Type and text of the exception that its function threw or that ended it in std::terminate. Empty if there was
  /// none. The type is "shoal::WriteToReadOnlyTensor" if a write to a read-only tensor ended the process.
  const std::string& exception_type() const noexcept;
  const std::string& exception_message() const noexcept;  ///< what() of that exception
  /// The exceptions nested in it (std::throw_with_nested), outermost first.
  const std::vector<ExceptionSummary>& nested() const noexcept { return nested_; }
  /// The calls in which it threw or crashed, innermost first. Empty if it could not tell (SIGKILL, exit). Each call
  /// looks the names up in the files of the program and its libraries, which takes milliseconds.
  std::vector<StackFrame> stack_trace() const;
  /// The last 4 KiB that the process wrote to stderr, std::cerr and std::clog.
  const std::string& stderr_tail() const noexcept;
  /// Whether SIGKILL ended it while the kernel counted an OOM kill in its cgroup.
  bool oom_killed() const noexcept;

  /// The failures of the other processes that were started together with this one, whose failure was the first.
  /// Processes that were ended because of it do not count.
  const std::vector<std::shared_ptr<const ProcessFailed>>& later_failures() const noexcept { return later_; }

  /// When it threw or crashed, in nanoseconds of the steady clock; 0 if it could not tell.
  std::int64_t time() const noexcept;

  /// A text of several lines for people: what(), nested exceptions, stack, the end of stderr, later failures.
  std::string report() const;

 protected:
  ProcessFailed(std::shared_ptr<const FailureFacts> facts, const std::string& what_happened,
                std::vector<std::shared_ptr<const ProcessFailed>> later);
  const FailureFacts& facts() const { return *facts_; }
  friend std::shared_ptr<const ProcessFailed> make_root_cause(const ProcessFailed& failure,
                                                              std::vector<std::shared_ptr<const ProcessFailed>> later);

 private:
  std::shared_ptr<const FailureFacts> facts_;
  std::string type_, message_;
  std::vector<ExceptionSummary> nested_;
  std::vector<std::shared_ptr<const ProcessFailed>> later_;
};

/// Failures of other processes, seen after the one that is the root cause.
using LaterFailures = std::vector<std::shared_ptr<const ProcessFailed>>;

/// The process's function threw.
class ProcessRaised : public ProcessFailed {
 public:
  /// Takes what is known of the process, and the failures that followed.
  explicit ProcessRaised(std::shared_ptr<const FailureFacts> facts, LaterFailures later = {});
};

/// A signal ended the process, or it exited without returning from its function.
class ProcessExited : public ProcessFailed {
 public:
  /// Takes what is known of the process, and the failures that followed.
  explicit ProcessExited(std::shared_ptr<const FailureFacts> facts, LaterFailures later = {});
  /// The exit code; nothing if a signal ended the process.
  std::optional<int> exit_code() const noexcept;
};

/// Makes the exception for these facts: ProcessRaised if the function threw, otherwise ProcessExited.
std::shared_ptr<const ProcessFailed> make_failure(std::shared_ptr<const FailureFacts> facts);
/// Makes a copy of `failure` that is the cause of later ones.
std::shared_ptr<const ProcessFailed> make_root_cause(const ProcessFailed& failure, LaterFailures later);
/// Throws it as what it is: ProcessRaised or ProcessExited.
[[noreturn]] void throw_failure(const ProcessFailed& failure);

}  // namespace shoal
