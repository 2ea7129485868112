// ProcessContext: processes that were started together.
#pragma once

#include <shoal/runtime/child_process.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// All of a ProcessContext but the results. The first failure of a rank ends the others (SIGTERM, SIGKILL after the
/// grace period) and is what join() throws, then and at every later call. Owned by the process that made it (a
/// forked copy does nothing), move-only. Threads: any, at once. Its destruction ends what still runs, and waits for
/// that.
class ContextHandle {
 public:
  ContextHandle(ContextHandle&& other) noexcept = default;
  ContextHandle& operator=(ContextHandle&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~ContextHandle();

  /// Waits until all have returned. Throws ProcessRaised or ProcessExited for the first that failed.
  void join();
  /// The same; false where some still run after the timeout.
  bool join(std::chrono::nanoseconds timeout);

  /// In rank order.
  std::vector<pid_t> pids() const;

  /// Starts them all, or throws and leaves none.
  ContextHandle(std::vector<std::unique_ptr<ChildProcess>> children, std::chrono::nanoseconds grace_period);

 protected:
  const std::vector<std::unique_ptr<ChildProcess>>& children() const { return state_->children; }

 private:
  struct State {
    std::vector<std::unique_ptr<ChildProcess>> children;
    std::chrono::nanoseconds grace_period;
    std::mutex mutex;  // of failure, and of ending the others
    std::shared_ptr<const ProcessFailed> failure;

    ~State() { end_processes(children, grace_period); }
    bool join(Deadline deadline);
    void check_failures();
  };
  std::unique_ptr<State> state_;
};

/// Processes started by start_processes; R is what their function returns.
template <class R>
class ProcessContext : public ContextHandle {
 public:
  using ContextHandle::ContextHandle;

  /// What the ranks have returned, in rank order; joins them first. From one thread.
  const std::vector<R>& results() & { return take(); }
  std::vector<R> results() && { return std::move(take()); }

 private:
  std::vector<R>& take() {
    join();
    if (results_.empty())
      for (auto& child : children()) {
        results_.push_back(decode<R>(child->result()));
        child->result().finish();
      }
    return results_;
  }
  std::vector<R> results_;
};

/// Of a function that returns nothing.
template <>
class ProcessContext<void> : public ContextHandle {
 public:
  using ContextHandle::ContextHandle;
};

}  // namespace shoal
