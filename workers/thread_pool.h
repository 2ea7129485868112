// ThreadPool: a pool whose workers are threads of this process.
#pragma once

#include <shoal/internal/workers/pool/calls/pool_calls.h>
#include <shoal/internal/workers/pool/thread_call.h>
#include <shoal/internal/workers/pool/thread_core.h>
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

/// multiprocessing.pool.ThreadPool: Pool's calls, with threads of this process. Nothing crosses, so functions may have
/// captures, arguments and results may be of any type that can be moved (std::ref for one by reference), and what a
/// function throws comes back as itself. All threads call the one function: a lambda that is `mutable` does not
/// compile.
///
///     shoal::ThreadPool pool(8);
///     auto pages = pool.map([&](const std::string& url) { return client.fetch(url); }, urls);
///
/// A thread cannot be ended from outside: terminate() begins nothing more, and the destructor waits for the tasks that
/// run. A task that crashes takes the process with it; there is no time-out. Belongs to the process that made it.
/// Threads: any, at once; a task may use its own pool, though one that waits for others there keeps a thread from them.
class ThreadPool : public detail::PoolCalls<detail::ThreadJobs> {
 public:
  /// 0: a thread for each CPU that this process may use. Throws std::invalid_argument and std::system_error.
  explicit ThreadPool(int threads = 0) : PoolCalls(std::make_shared<detail::ThreadCore>(threads, nullptr)) {}

  /// The same; each thread calls initializer(arguments...) before its first task. Where that throws the pool is
  /// stopped, and every task fails with PoolStopped, which says why.
  template <class Initializer, class... Args>
  ThreadPool(int threads, Initializer initializer, Args... arguments)
      : PoolCalls(std::make_shared<detail::ThreadCore>(
            threads, [initializer = std::move(initializer), ... arguments = std::move(arguments)] {
              std::invoke(initializer, arguments...);
            })) {}

  ThreadPool(ThreadPool&&) = default;
  ~ThreadPool() {
    // What still runs there, or cannot be waited for in a forked copy, keeps what it needs.
    if (core() && !core()->end()) new std::shared_ptr<detail::ThreadCore>(core());
  }
};

}  // namespace shoal
