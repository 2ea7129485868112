// Pool: worker processes that run tasks.
#pragma once

#include <shoal/internal/runtime/environment/local_rank.h>
#include <shoal/internal/workers/pool/calls/pool_calls.h>
#include <shoal/internal/workers/pool/pool_call.h>
#include <shoal/internal/workers/pool/pool_core.h>
#include <shoal/workers/pool_failure.h>
#include <shoal/workers/pool_options.h>

#include <memory>
#include <utility>
#include <vector>

namespace shoal {

namespace detail {

/// Tasks that run in worker processes.
struct ProcessJobs {
  using Core = PoolCore;
  template <class F, class... Args>
  using Call = CallJob<F, Args...>;
  template <Spread kSpread, class F, class Element>
  using Map = MapJob<kSpread, F, Element>;
};

}  // namespace detail

/// Worker processes that run tasks, like torch.multiprocessing.Pool. Functions are functions or lambdas without
/// captures. Arguments, elements and results are encodable values (see ipc/codec.h): tensors that are shared cross
/// without a copy, others with one copy into the shared heap.
///
///     shoal::Pool pool({.processes = 4});
///     std::vector<double> areas = pool.map(area, shapes);
///     auto later = pool.apply_async(evaluate, weights);      // later.get(timeout)
///     for (at::Tensor& image : pool.imap(decode_jpeg, paths)) ...
///
/// - If a function throws, the caller gets ProcessRaised with type, text, nested exceptions and stack; the worker goes
///   on.
/// - If a worker dies, the pool replaces it. The task that it ran fails with WorkerDied or runs again (PoolOptions);
///   other workers do the tasks that it had not begun. Nobody waits for a dead worker.
/// - Arguments are encoded when a worker gets the task, and perhaps again for another worker. Do not change tensors
///   given to apply_async or map_async meanwhile.
///
/// The pool belongs to the process that made it; its workers end with that process. The destructor terminates the pool,
/// like leaving a `with` block in Python. Threads: any, at once.
class Pool : public detail::PoolCalls<detail::ProcessJobs> {
 public:
  /// Starts the workers. Throws std::invalid_argument and SystemError.
  explicit Pool(const PoolOptions& options = {})
      : PoolCalls(
            std::make_shared<detail::PoolCore>(options, [](const ProcessOptions& how, const detail::WorkerEnds& ends) {
              return Process<detail::ServedAll>(how, serve, detail::share(ends));
            })) {}
  /// Starts `processes` workers with the default options.
  explicit Pool(int processes) : Pool(PoolOptions{.processes = processes}) {}

  /// Starts the workers; each calls initializer(arguments...) before its first task. If that throws, the pool stops,
  /// and every task fails with PoolStopped, which says why.
  template <class Initializer, class... Args>
  Pool(const PoolOptions& options, Initializer initializer, Args... arguments)
      : PoolCalls(start(options, std::move(initializer), std::move(arguments)...)) {}

  Pool(Pool&&) = default;
  ~Pool() {
    if (core()) core()->terminate();
  }

  /// The pids of the present workers. Throws std::invalid_argument in a forked copy.
  std::vector<int> pids() const { return core()->pids(); }

 private:
  static detail::ServedAll serve(detail::WorkerEnds ends) {
    const detail::WorkerLife life(ends);
    detail::set_worker_number(ends.index);
    return detail::serve_pool(ends);
  }

  template <class Initializer, class... Args>
  static std::shared_ptr<detail::PoolCore> start(const PoolOptions& options, Initializer initializer,
                                                 Args... arguments);
};

template <class Initializer, class... Args>
std::shared_ptr<detail::PoolCore> Pool::start(const PoolOptions& options, Initializer initializer, Args... arguments) {
  using C = Call<false, Initializer, Args...>;
  using Values = typename C::Values;
  const AnyFunction named = detail::name_of<Initializer>(initializer);
  return std::make_shared<detail::PoolCore>(options, [name = named ? name_function(named) : ImageFunction{},
                                                      values = Values(std::move(arguments)...)](
                                                         const ProcessOptions& how, const detail::WorkerEnds& ends) {
    auto work = [](detail::WorkerEnds its_ends, const ImageFunction& its_name, Values its_values) {
      const detail::WorkerLife life(its_ends);
      detail::set_worker_number(its_ends.index);
      auto function = detail::function_of<Initializer>(its_name.build_id.empty() ? nullptr : find_function(its_name));
      C::invoke(function, 0, its_values);
      return detail::serve_pool(its_ends);
    };
    return Process<detail::ServedAll>(how, work, detail::share(ends), name, values);
  });
}

}  // namespace shoal
