// How processes are started: the options of spawn, start_processes and Process.
#pragma once

#include <shoal/internal/runtime/cpu/binding.h>

#include <chrono>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// How a process comes into being. docs/launching.md compares the three.
enum class StartMethod {
  spawn,       ///< a fresh start of the program: inherits nothing, works from anywhere, takes as long as loading it
  forkserver,  ///< forked from a fresh process that has everything loaded: milliseconds
  fork,        ///< a copy of the calling process: for callables with captures
};

/// "spawn", "forkserver" or "fork", as torch.multiprocessing names them. Static text.
const char* method_name(StartMethod method);

/// The method where options say none: forkserver until it is set. As torch.multiprocessing's, but it may be set as
/// often as one likes. Started processes have that of their parent. Threads: any.
void set_start_method(StartMethod method) noexcept;
StartMethod get_start_method() noexcept;  ///< as set, here or in the parent; forkserver otherwise
/// The default one first, as Python's.
std::vector<StartMethod> get_all_start_methods();

/// Asked for a start method while the program runs that the callable does not allow.
[[noreturn]] void refuse_captures(StartMethod method);

/// In place of StartMethod in the options for callables with captures: they exist in this process only,
/// so any method but fork is an error, at compile time where the method is written out.
class ForkOnly {
 public:
  /// Of a method that is written out: does not compile for another one than fork.
  consteval ForkOnly(StartMethod method) {  // NOLINT: implicit, so that options read the same
    if (method != StartMethod::fork) a_callable_with_captures_works_with_StartMethod_fork_only();
  }
  /// Of a method that is only known when the program runs.
  static ForkOnly checked(StartMethod method) {
    if (method != StartMethod::fork) refuse_captures(method);
    return ForkOnly();
  }
  operator StartMethod() const { return StartMethod::fork; }  ///< fork

 private:
  constexpr ForkOnly() = default;
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
  /// What tables and process lists call them.
  std::string name = "rank";
  /// After one has failed: how long the others get between SIGTERM and SIGKILL.
  std::chrono::nanoseconds grace_period = std::chrono::milliseconds(500);
  /// Threads that each computes with. 0: its share of the CPUs, unless the user has set OMP_NUM_THREADS.
  int num_threads = 0;
  /// fork: goes ahead where other threads run. They, and the locks they hold, are lost in the child.
  bool fork_despite_threads = false;
  /// Which CPUs each gets, and with them its share of threads: see binding.h.
  Binding binding = Binding::none;
  /// Variables that they have besides this process's, or in place of its. With `spawn` they are there before anything
  /// of the program runs; with the other methods before the function does, which is too late for what libraries read
  /// when they are loaded (MKL_*, KMP_*, MALLOC_*, LD_*). OMP_NUM_THREADS is taken for num_threads.
  std::vector<std::pair<std::string, std::string>> environment = {};

  /// The same for a callable with captures. Throws std::invalid_argument unless the method is fork.
  operator BasicSpawnOptions<ForkOnly>() const
    requires std::is_same_v<Method, StartMethod>
  {
    return {nprocs,     ForkOnly::checked(start_method), name, grace_period, num_threads, fork_despite_threads, binding,
            environment};
  }
};
/// Options of spawn and start_processes for functions without captures.
using SpawnOptions = BasicSpawnOptions<StartMethod>;

/// Options of Process.
template <class Method>
struct BasicProcessOptions {
  std::string name = "process";                          ///< what tables and process lists call it
  Method start_method = default_start_method<Method>();  ///< how it is started
  /// Of the last handle that goes while the process runs: true ends it, false waits until it has returned. (In Python:
  /// of the program's end, and false unless said. In shoal no process outlives its parent in any case.)
  bool daemon = true;
  /// When the handle of a daemon goes while it runs: the time between SIGTERM and SIGKILL.
  std::chrono::nanoseconds grace_period = std::chrono::milliseconds(500);
  /// Threads that it computes with. 0: left as they are.
  int num_threads = 0;
  /// As in SpawnOptions.
  bool fork_despite_threads = false;
  /// Which of this process's CPUs it gets: as the process number `part` of `parts` of that binding.
  Binding binding = Binding::none;
  /// See binding: 0 to parts - 1.
  int part = 0, parts = 1;  ///< as many as share the CPUs
  /// As in SpawnOptions.
  std::vector<std::pair<std::string, std::string>> environment = {};

  /// The same for a callable with captures. Throws std::invalid_argument unless the method is fork.
  operator BasicProcessOptions<ForkOnly>() const
    requires std::is_same_v<Method, StartMethod>
  {
    return {name,        ForkOnly::checked(start_method),
            daemon,      grace_period,
            num_threads, fork_despite_threads,
            binding,     part,
            parts,       environment};
  }
};
/// Options of Process for functions without captures.
using ProcessOptions = BasicProcessOptions<StartMethod>;

}  // namespace shoal
