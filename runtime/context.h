// ProcessContext: processes that were started together.
#pragma once

#include <shoal/internal/runtime/start/child_process.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// The part of a ProcessContext that does not depend on the results' type. If a rank fails, the others are ended
/// (SIGTERM, SIGKILL after the grace period), and this and every later join() throws the first failure. A handle:
/// copies refer to the same processes. These belong to the process that made them; in a forked one the handles do
/// nothing. When the last handle goes, it ends processes that still run and waits for them. Threads: any, also on one
/// object, except for assignment and destruction.
class ContextHandle {
 public:
  /// Starts all `children`, or throws and leaves none running.
  ContextHandle(std::vector<std::unique_ptr<ChildProcess>> children, std::chrono::nanoseconds grace_period);

  /// Waits until all ranks have returned. If some failed, ends the others and then throws ProcessRaised or
  /// ProcessExited for the first failure, with the later ones in it. If SIGTERM or Ctrl-C asks this process to stop
  /// meanwhile, the ranks get SIGTERM and the grace period first; see stop.h.
  void join();
  /// Like join(); returns false if some ranks still run after `timeout`. A failure prolongs the wait by the grace
  /// period. A grace period given here replaces that of the options from now on.
  bool join(std::chrono::nanoseconds timeout, std::optional<std::chrono::nanoseconds> grace_period = {});

  /// Send SIGTERM or SIGKILL to all ranks that still run. For join() a rank that ends by it has failed, as if somebody
  /// else had sent the signal.
  void terminate();
  void kill();  ///< SIGKILL

  /// The pids, in rank order.
  std::vector<pid_t> pids() const;
  /// Descriptors to poll: each is readable when its rank has ended. They belong to the handles.
  std::vector<int> sentinels() const;
  /// Like Process::exitcode(), for each rank: nothing if it still runs.
  std::vector<std::optional<int>> exitcodes() const;

 protected:
  struct State {
    std::vector<std::unique_ptr<ChildProcess>> children;
    OrderlyWait orderly;
    std::atomic<std::chrono::nanoseconds> grace_period;
    std::mutex mutex;  ///< held to set `failure` and to end the others
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

/// Processes that start_processes() started; R is what their function returns.
template <class R>
class ProcessContext : public ContextHandle {
 public:
  /// Starts them all, or throws and leaves none.
  ProcessContext(std::vector<std::unique_ptr<ChildProcess>> children, std::chrono::nanoseconds grace_period)
      : ContextHandle(std::make_shared<StateWithResults>(std::move(children), grace_period)) {}

  /// Joins the ranks and returns what they returned, in rank order.
  const std::vector<R>& results() & {
    join();
    const std::lock_guard lock(own().results_mutex);
    return own().decoded();
  }
  /// Joins the ranks and moves out what they returned, once for all handles: then comes std::logic_error.
  std::vector<R> results() && {
    join();
    const std::lock_guard lock(own().results_mutex);
    std::vector<R> all = std::move(own().decoded());
    own().gone = true;
    return all;
  }

 private:
  struct StateWithResults : State {
    using State::State;
    std::mutex results_mutex;  // of these:
    std::vector<R> results;
    bool gone = false;

    /// Throws what decoding throws, and then again.
    std::vector<R>& decoded() {
      if (gone) throw std::logic_error("ProcessContext::results: they were moved out before: keep them");
      if (!results.empty()) return results;
      std::vector<R> all;
      for (auto& child : this->children) {
        all.push_back(decode<R>(child->result()));
        child->result().finish();
      }
      return results = std::move(all);
    }
  };

  StateWithResults& own() const { return static_cast<StateWithResults&>(state()); }
};

/// Processes whose function returns nothing.
template <>
class ProcessContext<void> : public ContextHandle {
 public:
  /// From what start_processes() made.
  using ContextHandle::ContextHandle;
};

}  // namespace shoal
