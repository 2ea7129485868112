// How processes are started: the options of spawn, start_processes and Process.
#pragma once

#include <shoal/internal/runtime/cpu/binding.h>
#include <shoal/runtime/option_text.h>

#include <chrono>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// How a process comes into being. docs/launching.md compares the three.
enum class StartMethod {
  spawn,       ///< starts the program afresh: inherits nothing, works from anywhere, takes as long as loading it
  forkserver,  ///< forks a fresh process that has everything loaded: takes milliseconds
  fork,        ///< copies the calling process: for callables with captures
};

/// "spawn", "forkserver" or "fork", as torch.multiprocessing names them. Static text.
const char* method_name(StartMethod method);

/// The start method for options that name none: forkserver until set_start_method() sets another one. Like
/// torch.multiprocessing's, but it may be set as often as one likes. A started process has its parent's. Threads: any.
void set_start_method(StartMethod method) noexcept;
StartMethod get_start_method() noexcept;  ///< as set, here or in the parent; forkserver otherwise
/// All start methods, the default first, as in Python.
std::vector<StartMethod> get_all_start_methods();

/// Throws for a start method, chosen at run time, that a callable with captures does not allow.
[[noreturn]] void refuse_captures(StartMethod method);

/// Stands for StartMethod in the options for callables with captures. These exist in this process only, so any method
/// but fork is an error: at compile time if the method is a constant.
class ForkOnly {
 public:
  /// Takes a method that is written out: another one than fork does not compile.
  explicit(false) consteval ForkOnly(StartMethod method) {
    // NOLINTNEXTLINE(readability-identifier-naming): as below.
    if (method != StartMethod::fork) a_callable_with_captures_works_with_StartMethod_fork_only();
  }
  /// Checks a method that is known only at run time.
  static ForkOnly checked(StartMethod method) {
    if (method != StartMethod::fork) refuse_captures(method);
    return ForkOnly();
  }
  // NOLINTNEXTLINE(google-explicit-constructor): options read the same.
  operator StartMethod() const { return StartMethod::fork; }  ///< fork

 private:
  constexpr ForkOnly() = default;
  // NOLINTNEXTLINE(readability-identifier-naming): a sentence for the compiler's error.
  static void a_callable_with_captures_works_with_StartMethod_fork_only();
};

/// What options without a start method mean: get_start_method(). Does not compile for callables with captures.
template <class Method>
Method default_start_method() {
  static_assert(
      std::is_same_v<Method, StartMethod>,
      "shoal: a callable with captures exists in this process only: add .start_method = "
      "shoal::StartMethod::fork to the options, or pass a function (or a lambda without captures) and arguments");
  return get_start_method();
}

/// Options of spawn and start_processes.
template <class Method>
struct BasicSpawnOptions {
  int nprocs = 1;                                        ///< how many are started; ranks are 0 to nprocs - 1
  Method start_method = default_start_method<Method>();  ///< how they are started
  /// Their name in tables and process lists.
  std::string name = "rank";
  /// The time between SIGTERM and SIGKILL for the others after one has failed.
  std::chrono::nanoseconds grace_period = std::chrono::milliseconds(500);
  /// Threads that each process computes with. 0: its share of the CPUs, unless the user has set OMP_NUM_THREADS.
  int num_threads = 0;
  /// Whether `fork` goes ahead if other threads run. The child loses these threads, and locks that they hold stay
  /// locked.
  bool fork_despite_threads = false;
  /// Which CPUs each process gets, and so its share of threads: see binding.h.
  Binding binding = Binding::none;
  /// Environment variables that the processes have besides this process's, or instead of them. With `spawn` they are
  /// set before anything of the program runs. With the other methods they are set before the function runs: too late
  /// for variables that libraries read when they are loaded (MKL_*, KMP_*, MALLOC_*, LD_*). OMP_NUM_THREADS sets
  /// num_threads.
  std::vector<std::pair<std::string, std::string>> environment = {};

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"nprocs", "how many processes are started", {.least = 1}},
      {"start_method", "how they are started"},
      {"name", "in tables and process lists"},
      {"grace_period", "between SIGTERM and SIGKILL for the others after one has failed", {.least = 0}},
      {"num_threads", "that each process computes with; 0: its share of the CPUs", {.least = 0}},
      {"fork_despite_threads", "fork goes ahead though other threads run"},
      {"binding", "which CPUs each process gets"},
      {"environment", "variables that the processes have besides, or instead"},
  };

  /// These options for a callable with captures. Throws std::invalid_argument unless the method is fork.
  // NOLINTNEXTLINE(google-explicit-constructor): options read the same.
  operator BasicSpawnOptions<ForkOnly>() const
    requires std::is_same_v<Method, StartMethod>;
};
/// Options of spawn and start_processes for functions without captures.
using SpawnOptions = BasicSpawnOptions<StartMethod>;

/// Options of Process.
template <class Method>
struct BasicProcessOptions {
  std::string name = "process";                          ///< what tables and process lists call it
  Method start_method = default_start_method<Method>();  ///< how it is started
  /// What happens when the last handle goes while the process runs: true ends the process, false waits until it has
  /// returned. (In Python `daemon` is about the program's end and false by default. With shoal no process outlives its
  /// parent in any case.)
  bool daemon = true;
  /// The time between SIGTERM and SIGKILL when the last handle of a running daemon goes.
  std::chrono::nanoseconds grace_period = std::chrono::milliseconds(500);
  /// Threads that the process computes with. 0: left as they are; with a binding its share of the CPUs.
  int num_threads = 0;
  /// Whether `fork` goes ahead if other threads run: see SpawnOptions.
  bool fork_despite_threads = false;
  /// Which of this process's CPUs it gets: those of process number `part` among `parts` with this binding.
  Binding binding = Binding::none;
  /// See binding: 0 to parts - 1.
  int part = 0, parts = 1;  ///< as many as share the CPUs
  /// Environment variables that the process has besides this process's: see SpawnOptions.
  std::vector<std::pair<std::string, std::string>> environment = {};

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"name", "in tables and process lists"},
      {"start_method", "how it is started"},
      {"daemon", "the process ends when its last handle goes; false: that waits for it"},
      {"grace_period", "between SIGTERM and SIGKILL", {.least = 0}},
      {"num_threads", "that the process computes with; 0: left as they are", {.least = 0}},
      {"fork_despite_threads", "fork goes ahead though other threads run"},
      {"binding", "which CPUs it gets"},
      {"part", "its number among those that share the CPUs", {.least = 0}},
      {"parts", "how many share the CPUs", {.least = 1}},
      {"environment", "variables that the process has besides, or instead"},
  };

  /// These options for a callable with captures. Throws std::invalid_argument unless the method is fork.
  // NOLINTNEXTLINE(google-explicit-constructor): options read the same.
  operator BasicProcessOptions<ForkOnly>() const
    requires std::is_same_v<Method, StartMethod>;
};
/// Options of Process for functions without captures.
using ProcessOptions = BasicProcessOptions<StartMethod>;

namespace detail {

template <class To>
To as_method(StartMethod method) {
  if constexpr (std::is_same_v<To, ForkOnly>)
    return ForkOnly::checked(method);
  else
    return method;
}

/// `options` with another type of start_method. A member that is added does not compile here, as a structured
/// binding names all of them, until it is copied too.
template <class To, class Method>
BasicSpawnOptions<To> with_method(const BasicSpawnOptions<Method>& options) {
  const auto& [nprocs, method, name, grace_period, num_threads, fork_despite_threads, binding, environment] = options;
  return {.nprocs = nprocs,
          .start_method = as_method<To>(method),
          .name = name,
          .grace_period = grace_period,
          .num_threads = num_threads,
          .fork_despite_threads = fork_despite_threads,
          .binding = binding,
          .environment = environment};
}
template <class To, class Method>
BasicProcessOptions<To> with_method(const BasicProcessOptions<Method>& options) {
  const auto& [name, method, daemon, grace_period, num_threads, fork_despite_threads, binding, part, parts,
               environment] = options;
  return {.name = name,
          .start_method = as_method<To>(method),
          .daemon = daemon,
          .grace_period = grace_period,
          .num_threads = num_threads,
          .fork_despite_threads = fork_despite_threads,
          .binding = binding,
          .part = part,
          .parts = parts,
          .environment = environment};
}

}  // namespace detail

template <class Method>
BasicSpawnOptions<Method>::operator BasicSpawnOptions<ForkOnly>() const
  requires std::is_same_v<Method, StartMethod>
{
  return detail::with_method<ForkOnly>(*this);
}
template <class Method>
BasicProcessOptions<Method>::operator BasicProcessOptions<ForkOnly>() const
  requires std::is_same_v<Method, StartMethod>
{
  return detail::with_method<ForkOnly>(*this);
}

}  // namespace shoal
