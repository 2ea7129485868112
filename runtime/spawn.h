// spawn and start_processes: one function in several processes.
#pragma once

#include <shoal/internal/runtime/call/task.h>
#include <shoal/runtime/context.h>
#include <shoal/runtime/options.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// SpawnOptions; for a callable with captures the variant that allows only `fork`.
template <class F>
using SpawnOptionsFor = BasicSpawnOptions<std::conditional_t<kCallableCrosses<std::decay_t<F>>, StartMethod, ForkOnly>>;

namespace detail {
std::vector<std::unique_ptr<ChildProcess>> make_ranks(const SpawnOptions& options, std::shared_ptr<Task> task);
}

/// Starts `options.nprocs` processes that each call function(rank, arguments...) with ranks from 0, like
/// torch.multiprocessing.start_processes(join=False). The function is a function pointer or a lambda without captures,
/// or, with `.start_method = StartMethod::fork`, any callable. Arguments and result are encodable values (see
/// ipc/codec.h). Throws std::invalid_argument if nprocs is not positive or exceeds the room in the session.
template <class F, class... Args>
auto start_processes(const SpawnOptionsFor<F>& options, F&& function, Args&&... arguments) {
  using Result = typename Call<true, F, Args...>::Result;
  auto task =
      std::make_shared<TypedTask<true, F, Args...>>(std::forward<F>(function), std::forward<Args>(arguments)...);
  return ProcessContext<Result>(detail::make_ranks(detail::with_method<StartMethod>(options), std::move(task)),
                                options.grace_period);
}

/// Starts processes, waits for them and returns their results in rank order; returns void if the function does. If a
/// process fails, ends the others and throws the first failure: ProcessRaised or ProcessExited.
template <class F, class... Args>
auto spawn(const SpawnOptionsFor<F>& options, F&& function, Args&&... arguments) {
  HeldStop held;  // from the start on: a stop between that and the wait would leave the ranks no time
  auto context = start_processes(options, std::forward<F>(function), std::forward<Args>(arguments)...);
  context.join();
  if constexpr (!std::is_void_v<typename Call<true, F, Args...>::Result>) return std::move(context).results();
}

}  // namespace shoal
