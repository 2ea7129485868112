// Pool: worker processes that run tasks.
#pragma once

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

/// Worker processes that run tasks, as torch.multiprocessing.Pool. Functions are functions or lambdas without captures;
/// arguments, elements and results are encodable values (see ipc/codec.h): tensors among them cross without a copy
/// where they are shared already, with one into the shared heap otherwise.
///
///     shoal::Pool pool({.processes = 4});
///     std::vector<double> areas = pool.map(area, shapes);
///     auto later = pool.apply_async(evaluate, weights);      // later.get(timeout)
///     for (at::Tensor& image : pool.imap(decode_jpeg, paths)) ...
///
/// What a function throws comes back as ProcessRaised, with type, text, nested exceptions and stack, and its worker
/// goes on. A worker that dies is replaced; the task that it ran is WorkerDied, or run again (PoolOptions), and those
/// that it had not begun are done by others. Nothing waits for a dead worker. Arguments are encoded when a worker gets
/// the task, maybe again for another one: tensors given to apply_async or map_async must not be changed meanwhile.
///
/// Belongs to the process that made it; workers end with it. Its destructor terminates it, as leaving a `with` block
/// does in Python. Threads: any, at once.
class Pool : public detail::PoolCalls<detail::ProcessJobs> {
 public:
  /// Starts the workers. Throws std::invalid_argument and SystemError.
  explicit Pool(const PoolOptions& options = {})
      : PoolCalls(
            std::make_shared<detail::PoolCore>(options, [](const ProcessOptions& how, const detail::WorkerEnds& ends) {
              return Process<void>(how, serve, detail::share(ends));
            })) {}
  /// `processes` workers.
  explicit Pool(int processes) : Pool(PoolOptions{.processes = processes}) {}

  /// The same; each worker calls initializer(arguments...) before its first task. Where that throws the pool is
  /// stopped, and every task fails with PoolStopped, which says why.
  template <class Initializer, class... Args>
  Pool(const PoolOptions& options, Initializer initializer, Args... arguments)
      : PoolCalls(start(options, std::move(initializer), std::move(arguments)...)) {}

  Pool(Pool&&) = default;
  ~Pool() {
    if (core()) core()->terminate();
  }

  /// Of the workers that there are now.
  [[nodiscard]] std::vector<int> pids() const { return core()->pids(); }

 private:
  static void serve(detail::WorkerEnds ends) {
    const detail::WorkerLife life(ends);
    detail::serve_pool(ends);
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
      auto function = detail::function_of<Initializer>(its_name.build_id.empty() ? nullptr : find_function(its_name));
      C::invoke(function, 0, its_values);
      detail::serve_pool(its_ends);
    };
    return Process<void>(how, work, detail::share(ends), name, values);
  });
}

}  // namespace shoal
