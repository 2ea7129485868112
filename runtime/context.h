// ProcessContext: processes that were started together.
#pragma once

#include <shoal/internal/runtime/start/child_process.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// All of a ProcessContext but the results. The first failure of a rank ends the others (SIGTERM, SIGKILL after the
/// grace period) and is what join() throws, then and at every later call. A handle: a copy is the same processes, which
/// belong to the process that made them (in a forked one handles do nothing). The end of the last handle ends what
/// still runs, and waits for that. Threads: any, also on one object, but for assignment and destruction.
class ContextHandle {
 public:
  /// Starts them all, or throws and leaves none.
  ContextHandle(std::vector<std::unique_ptr<ChildProcess>> children, std::chrono::nanoseconds grace_period);

  /// Waits until all have returned. Throws ProcessRaised or ProcessExited for the first that failed, with the failures
  /// after it, when the others have been ended. If this process is asked to stop meanwhile, by SIGTERM or Ctrl-C, the
  /// ranks get SIGTERM and the grace period first; see stop.h.
  void join();
  /// The same; false where some still run after the timeout, which a failure prolongs by the grace period. A grace
  /// period given here is used instead of the options' from now on.
  bool join(std::chrono::nanoseconds timeout, std::optional<std::chrono::nanoseconds> grace_period = {});

  /// SIGTERM and SIGKILL for all that still run. That they end by it is a failure to join(), as if another had sent it.
  void terminate();
  void kill();  ///< SIGKILL

  /// In rank order.
  std::vector<pid_t> pids() const;
  /// Descriptors to poll: each is readable when that rank has ended. They belong to the handles.
  std::vector<int> sentinels() const;
  /// Nothing for those that still run; as Process::exitcode.
  std::vector<std::optional<int>> exitcodes() const;

 protected:
  struct State {
    std::vector<std::unique_ptr<ChildProcess>> children;
    OrderlyWait orderly;
    std::atomic<std::chrono::nanoseconds> grace_period;
    std::mutex mutex;  ///< of failure, and of ending the others
    std::shared_ptr<const ProcessFailed> failure;

    State(std::vector<std::unique_ptr<ChildProcess>> started, std::chrono::nanoseconds grace)
        : children(std::move(started)), grace_period(grace) {}
    virtual ~State() { end_processes(children, grace_period); }
    bool join(Deadline deadline);
    void check_failures();
    void check_all_succeeded();
  };

  explicit ContextHandle(std::shared_ptr<State> state);
  State& state() const;

 private:
  std::shared_ptr<State> state_;
};

/// Processes started by start_processes; R is what their function returns.
template <class R>
class ProcessContext : public ContextHandle {
 public:
  /// Starts them all, or throws and leaves none.
  ProcessContext(std::vector<std::unique_ptr<ChildProcess>> children, std::chrono::nanoseconds grace_period)
      : ContextHandle(std::make_shared<StateWithResults>(std::move(children), grace_period)) {}

  /// What the ranks have returned, in rank order; joins them first. The second moves them out, once for all handles.
  const std::vector<R>& results() & { return take(); }
  /// Moves them out.
  std::vector<R> results() && { return std::move(take()); }

 private:
  struct StateWithResults : State {
    using State::State;
    std::mutex results_mutex;
    std::vector<R> results;
  };

  std::vector<R>& take() {
    join();
    auto& own = static_cast<StateWithResults&>(state());
    std::lock_guard lock(own.results_mutex);
    if (own.results.empty())
      for (auto& child : own.children) {
        own.results.push_back(decode<R>(child->result()));
        child->result().finish();
      }
    return own.results;
  }
};

/// Of a function that returns nothing.
template <>
class ProcessContext<void> : public ContextHandle {
 public:
  /// As ContextHandle's.
  using ContextHandle::ContextHandle;
};

}  // namespace shoal
