// Process: one function in one other process.
#pragma once

#include <shoal/internal/runtime/call/task.h>
#include <shoal/internal/runtime/start/child_process.h>
#include <shoal/runtime/options.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace shoal {

/// ProcessOptions, or for a callable with captures its variant that knows `fork` only.
template <class F>
using ProcessOptionsFor =
    BasicProcessOptions<std::conditional_t<kCallableCrosses<std::decay_t<F>>, StartMethod, ForkOnly>>;

namespace detail {
/// What a Process is started with. Throws std::invalid_argument for a part that there is not.
ChildSettings child_settings(const ProcessOptions& options);
template <class Method>
ChildSettings child_settings(const BasicProcessOptions<Method>& options) {
  return child_settings(ProcessOptions{options.name, options.start_method, options.daemon, options.grace_period,
                                       options.num_threads, options.fork_despite_threads, options.binding, options.part,
                                       options.parts, options.environment});
}
}  // namespace detail

/// All of a Process but its result; named for those that keep processes of several kinds. As Python's
/// multiprocessing.Process. A handle: a copy is the same process, which belongs to the process that made it (in a
/// forked one handles do nothing). The end of the last handle ends a child that still runs (SIGTERM, SIGKILL after the
/// grace period) and waits for that; or only waits, where it is no daemon. Threads: any, also on one object, but
/// for what changes the object itself: start(), close(), assignment and destruction.
class ProcessHandle {
 public:
  /// Returns when the process exists. Throws what encoding the arguments throws, and SystemError.
  void start();
  /// Waits for its end, however it ends: a failure is for exitcode() and result() to tell. If this process is asked
  /// to stop meanwhile, by SIGTERM or Ctrl-C, the child gets SIGTERM and the grace period first.
  void join();
  /// False where it still runs after the timeout.
  bool join(std::chrono::nanoseconds timeout);

  /// False before the start and after the end.
  bool is_alive() const;
  /// Nothing before its end; minus the signal's number where one ended it.
  std::optional<int> exitcode() const;
  pid_t pid() const { return child().pid(); }                          ///< throws std::logic_error before the start
  const std::string& name() const { return child().settings().name; }  ///< as given in the options
  bool daemon() const { return state().ending.daemon; }                ///< as given in the options
  /// A descriptor to poll: readable when the process has ended. Belongs to the handles.
  int sentinel() const { return child().sentinel(); }

  /// SIGTERM and SIGKILL. Nothing happens where it has ended already.
  void terminate();
  void kill();  ///< SIGKILL
  /// Any other signal. Nothing happens where it has ended already.
  void send_signal(int number);

  /// Lets go of the process, which must not run: this object can be used no more, but closed again.
  void close();

 protected:
  struct Ending {
    std::chrono::nanoseconds grace_period;
    bool daemon;
  };
  struct State {
    State(ChildSettings settings, const Ending& how, std::shared_ptr<Task> task);
    virtual ~State();

    std::unique_ptr<ChildProcess> child[1];
    OrderlyWait orderly;
    Ending ending;
  };

  explicit ProcessHandle(std::shared_ptr<State> state) : state_(std::move(state)) {}
  State& state() const;
  ChildProcess& child() const { return *state().child[0]; }
  /// Waits for the end, and throws ProcessFailed where it was a failure.
  ChildProcess& check_succeeded();

 private:
  bool wait(Deadline deadline);
  std::shared_ptr<State> state_;
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
  /// Starts nothing yet: start() does. Function and arguments are kept until then.
  template <class F, class... Args>
  Process(const ProcessOptionsFor<F>& options, F&& function, Args&&... arguments)
      : ProcessHandle(std::make_shared<StateWithResult>(
            detail::child_settings(options), Ending{options.grace_period, options.daemon},
            std::make_shared<TypedTask<false, F, Args...>>(std::forward<F>(function),
                                                           std::forward<Args>(arguments)...))) {}

  /// Waits for the end. Throws ProcessRaised or ProcessExited where the function did not return. A result that can
  /// only be moved comes once.
  R result() {
    ChildProcess& ended = check_succeeded();
    if constexpr (!std::is_void_v<R>) {
      auto& own = static_cast<StateWithResult&>(state());
      std::lock_guard lock(own.mutex);
      if (!own.result) {
        own.result = decode<R>(ended.result());
        ended.result().finish();
      }
      if constexpr (std::is_copy_constructible_v<R>)
        return *own.result;
      else
        return std::move(*own.result);
    }
  }

 private:
  struct Nothing {};
  struct StateWithResult : State {
    using State::State;
    std::mutex mutex;
    std::conditional_t<std::is_void_v<R>, Nothing, std::optional<R>> result;
  };
};

template <class F, class... Args>
Process(const ProcessOptionsFor<F>&, F&&, Args&&...) -> Process<typename Call<false, F, Args...>::Result>;

}  // namespace shoal
