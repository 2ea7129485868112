// Process: one function in one other process.
#pragma once

#include <shoal/runtime/child_process.h>
#include <shoal/runtime/options.h>
#include <shoal/runtime/task.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace shoal {

/// ProcessOptions, or for a callable with captures its variant that knows `fork` only.
template <class F>
using ProcessOptionsFor =
    BasicProcessOptions<std::conditional_t<kCallableCrosses<std::decay_t<F>>, StartMethod, ForkOnly>>;

/// All of a Process but its result; named for those that keep processes of several kinds. As Python's
/// multiprocessing.Process. Owned by the process that made it (a forked copy of it does nothing), move-only.
/// Threads: any at once, when it is started (result(): one). Its destruction ends a child that still runs (SIGTERM,
/// SIGKILL after the grace period) and waits for that.
class ProcessHandle {
 public:
  ProcessHandle(ProcessHandle&& other) noexcept = default;
  ProcessHandle& operator=(ProcessHandle&& other) noexcept {
    std::swap(child_, other.child_);
    std::swap(grace_period_, other.grace_period_);
    return *this;
  }
  ~ProcessHandle();

  /// Returns when the process exists. Throws what encoding the arguments throws, and SystemError.
  void start();
  /// Waits for its end, however it ends: a failure is for exitcode() and result() to tell.
  void join();
  /// False where it still runs after the timeout.
  bool join(std::chrono::nanoseconds timeout);

  /// False before the start and after the end.
  bool is_alive();
  /// Nothing before its end; minus the signal's number where one ended it.
  std::optional<int> exitcode();
  pid_t pid() const { return child().pid(); }
  const std::string& name() const { return child().settings().name; }
  /// A descriptor to poll: readable when the process has ended. Belongs to this object.
  int sentinel() const { return child().sentinel(); }

  /// SIGTERM and SIGKILL. Nothing happens where it has ended already.
  void terminate();
  void kill();

 protected:
  ProcessHandle(ChildSettings settings, std::chrono::nanoseconds grace_period, std::shared_ptr<Task> task);
  ChildProcess& child() const;
  /// Waits for the end, and throws ProcessFailed where it was a failure.
  ChildProcess& check_succeeded();

 private:
  std::unique_ptr<ChildProcess> child_;
  std::chrono::nanoseconds grace_period_;
};

/// One function in one other process; R is what it returns. The function is a function pointer or a
/// lambda without captures, or any callable with `.start_method = StartMethod::fork`; arguments and result
/// are encodable values (see ipc/codec.h).
///
///     shoal::Process process({.name = "evaluator"}, evaluate, weights);
///     process.start();
///     double accuracy = process.result();
template <class R>
class Process : public ProcessHandle {
 public:
  template <class F, class... Args>
  Process(const ProcessOptionsFor<F>& options, F&& function, Args&&... arguments)
      : ProcessHandle({.name = options.name,
                       .start_method = options.start_method,
                       .num_threads = options.num_threads,
                       .fork_despite_threads = options.fork_despite_threads,
                       .prints_failure = true},
                      options.grace_period,
                      std::make_shared<TypedTask<false, F, Args...>>(std::forward<F>(function),
                                                                     std::forward<Args>(arguments)...)) {}

  /// Waits for the end. Throws ProcessRaised or ProcessExited where the function did not return.
  R result() {
    ChildProcess& ended = check_succeeded();
    if constexpr (!std::is_void_v<R>) {
      if (!result_) {
        result_ = decode<R>(ended.result());
        ended.result().finish();
      }
      if constexpr (std::is_copy_constructible_v<R>)
        return *result_;
      else
        return std::move(*result_);  // once, then
    }
  }

 private:
  struct Nothing {};
  std::conditional_t<std::is_void_v<R>, Nothing, std::optional<R>> result_;
};

template <class F, class... Args>
Process(const ProcessOptionsFor<F>&, F&&, Args&&...) -> Process<typename Call<false, F, Args...>::Result>;

}  // namespace shoal
