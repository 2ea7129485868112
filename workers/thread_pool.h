// ThreadPool: a pool whose workers are threads of this process.
#pragma once

#include <shoal/internal/workers/pool/calls/pool_calls.h>
#include <shoal/internal/workers/pool/threads/thread_call.h>
#include <shoal/internal/workers/pool/threads/thread_core.h>
#include <shoal/workers/pool_failure.h>

#include <functional>
#include <memory>
#include <utility>

namespace shoal {

namespace detail {

/// Tasks that run in threads.
struct ThreadJobs {
  using Core = ThreadCore;
  template <class F, class... Args>
  using Call = ThreadCallJob<F, Args...>;
  template <Spread kSpread, class F, class Element>
  using Map = ThreadMapJob<kSpread, F, Element>;
};

}  // namespace detail

/// Pool's calls, run by threads of this process, like multiprocessing.pool.ThreadPool. Nothing crosses: functions may
/// have captures, arguments and results may be of any type that can be moved (std::ref passes one by reference), and a
/// function's exception comes back as it is. All threads call the one function, so a `mutable` lambda does not compile.
///
///     shoal::ThreadPool pool(8);
///     auto pages = pool.map([&](const std::string& url) { return client.fetch(url); }, urls);
///
/// Nobody can end a thread from outside: terminate() begins no further task, and the destructor waits for the tasks
/// that run. There is no time-out, and a task that crashes takes the process with it. The pool belongs to the process
/// that made it. Threads: any, at once. A task may use its own pool, but while it waits there it keeps one thread from
/// other tasks.
class ThreadPool : public detail::PoolCalls<detail::ThreadJobs> {
 public:
  /// Starts `threads` threads; 0: one for each CPU that this process may use. Throws std::invalid_argument and
  /// std::system_error.
  explicit ThreadPool(int threads = 0) : PoolCalls(std::make_shared<detail::ThreadCore>(threads, nullptr)) {}

  /// Starts `threads` threads; each calls initializer(arguments...) before its first task. If that throws, the pool
  /// stops, and every task fails with PoolStopped, which says why.
  template <class Initializer, class... Args>
  ThreadPool(int threads, Initializer initializer, Args... arguments)
      : PoolCalls(std::make_shared<detail::ThreadCore>(
            threads, [initializer = std::move(initializer), ... arguments = std::move(arguments)] {
              std::invoke(initializer, arguments...);
            })) {}

  ThreadPool(ThreadPool&&) = default;
  ~ThreadPool() {
    // Tasks that still run, or that a forked copy cannot wait for, keep what they need.
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory for a pointer nothing goes on anyway.
    if (core() && !core()->end()) new std::shared_ptr<detail::ThreadCore>(core());
  }
};

}  // namespace shoal
