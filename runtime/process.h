// Process: one function in one other process.
#pragma once

#include <shoal/internal/runtime/call/task.h>
#include <shoal/internal/runtime/start/child_process.h>
#include <shoal/runtime/options.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace shoal {

/// ProcessOptions; for a callable with captures the variant that allows only `fork`.
template <class F>
using ProcessOptionsFor =
    BasicProcessOptions<std::conditional_t<kCallableCrosses<std::decay_t<F>>, StartMethod, ForkOnly>>;

namespace detail {
/// The settings that a Process is started with. Throws std::invalid_argument if `part` is not one of `parts`.
ChildSettings child_settings(const ProcessOptions& options);
inline ChildSettings child_settings(const BasicProcessOptions<ForkOnly>& options) {
  return child_settings(with_method<StartMethod>(options));
}
/// Told apart from options and handles, which may stand in its place.
template <class F, class... Args>
concept Startable = HasSignature<std::decay_t<F>> || std::is_invocable_v<std::decay_t<F>&, std::decay_t<Args>&...>;
/// The call; nothing if it is none, since clang instantiates what a deduction guide returns before it asks what that requires.
template <class F, class... Args>
struct Started {};
template <class F, class... Args>
  requires Startable<F, Args...>
struct Started<F, Args...> : Call<false, F, Args...> {};
}  // namespace detail

/// The part of a Process that does not depend on its result, for containers of processes of several kinds. Like
/// Python's multiprocessing.Process. A handle: copies refer to the same process. It belongs to the process that made
/// it; in a forked one the handles do nothing. When the last handle goes while the child runs, it ends the child
/// (SIGTERM, SIGKILL after the grace period) and waits for it; if the child is no daemon, it only waits. Threads: any,
/// also on one object, except for what changes the object itself: start(), close(), assignment and destruction.
class ProcessHandle {
 public:
  /// Starts the process and returns when it exists. Throws what encoding the arguments throws, and SystemError.
  void start();
  /// Waits for the process's end and does not throw if it failed: exitcode() and result() tell. If SIGTERM or Ctrl-C
  /// asks this process to stop meanwhile, the child gets SIGTERM and the grace period first.
  void join();
  /// Like join(); returns false if the process still runs after `timeout`.
  bool join(std::chrono::nanoseconds timeout);

  /// Whether it runs: false before the start and after the end.
  bool is_alive() const;
  /// The exit code, or minus the number of the signal that ended the process; nothing before its end.
  std::optional<int> exitcode() const;
  pid_t pid() const { return child().pid(); }                          ///< throws std::logic_error before the start
  const std::string& name() const { return child().settings().name; }  ///< as given in the options
  bool daemon() const { return state().ending.daemon; }                ///< as given in the options
  /// A descriptor to poll: it is readable when the process has ended. It belongs to the handles.
  int sentinel() const { return child().sentinel(); }

  /// Send SIGTERM or SIGKILL. They do nothing if the process has ended.
  void terminate();
  void kill();  ///< SIGKILL
  /// Sends any signal. It does nothing if the process has ended.
  void send_signal(int number);

  /// Lets go of the process, which must not run. Afterwards this object allows nothing but close().
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
  /// Waits for the end. Throws ProcessFailed if the process failed.
  ChildProcess& check_succeeded();

 private:
  bool wait(Deadline deadline);
  std::shared_ptr<State> state_;
};

/// One function in one other process; R is what it returns. The function is a function pointer or a lambda without
/// captures, or, with `.start_method = StartMethod::fork`, any callable. Arguments and result are encodable values (see
/// ipc/codec.h).
///
///     shoal::Process process(evaluate, weights);  // with options: process({.name = "evaluator"}, evaluate, weights)
///     process.start();
///     double accuracy = process.result();
template <class R>
class Process : public ProcessHandle {
 public:
  /// Starts nothing yet: start() does. Function and arguments are kept until then.
  template <class F, class... Args>
    requires detail::Startable<F, Args...>
  Process(const ProcessOptionsFor<F>& options, F&& function, Args&&... arguments)
      : ProcessHandle(std::make_shared<StateWithResult>(
            detail::child_settings(options), Ending{.grace_period = options.grace_period, .daemon = options.daemon},
            std::make_shared<TypedTask<false, F, Args...>>(std::forward<F>(function),
                                                           std::forward<Args>(arguments)...))) {}
  /// The same with default options.
  template <class F, class... Args>
    requires detail::Startable<F, Args...>
  explicit Process(F&& function, Args&&... arguments)
      : Process(ProcessOptionsFor<F>{}, std::forward<F>(function), std::forward<Args>(arguments)...) {}

  /// Waits for the end and returns the function's result. Throws ProcessRaised or ProcessExited if the function did not
  /// return. A result that can only be moved is returned once; then comes std::logic_error.
  R result() {
    ChildProcess& ended = check_succeeded();
    if constexpr (!std::is_void_v<R>) {
      auto& own = static_cast<StateWithResult&>(state());
      std::lock_guard lock(own.mutex);
      if (own.gone) throw std::logic_error("Process::result: it can only be moved, and was returned before: keep it");
      if (!own.result) {
        own.result = decode<R>(ended.result());
        ended.result().finish();
      }
      if constexpr (std::is_copy_constructible_v<R>) return *own.result;
      own.gone = true;
      return std::move(*own.result);
    }
  }

 private:
  struct Nothing {};
  struct StateWithResult : State {
    using State::State;
    std::mutex mutex;
    std::conditional_t<std::is_void_v<R>, Nothing, std::optional<R>> result;
    bool gone = false;
  };
};

template <class F, class... Args>
Process(const ProcessOptionsFor<F>&, F&&, Args&&...) -> Process<typename detail::Started<F, Args...>::Result>;
template <class F, class... Args>
Process(F&&, Args&&...) -> Process<typename detail::Started<F, Args...>::Result>;

}  // namespace shoal
