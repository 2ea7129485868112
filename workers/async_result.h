// AsyncResult<R>: the result of a pool's task that may not be there yet.
#pragma once

#include <shoal/internal/workers/pool/host.h>
#include <shoal/internal/workers/pool/pool_call.h>
#include <shoal/ipc/error.h>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

namespace shoal {

namespace detail {
template <class Jobs>
class PoolCalls;
}

/// As multiprocessing.pool.AsyncResult. A handle: a copy is the same result. The pool may be gone; then results that
/// were not there are errors. Threads: any, at once.
template <class R>
class AsyncResult {
 public:
  /// Waits for the result. Throws what the function threw, as ProcessRaised (of a ThreadPool: itself); WorkerDied,
  /// PoolStopped, and what encoding or decoding threw. Every call gives it again; one that can only be moved comes
  /// once.
  R get() {
    wait(Deadline::never());
    return take();
  }
  /// The same; TimeoutError after `timeout`.
  R get(std::chrono::nanoseconds timeout) {
    if (!wait(Deadline::after(timeout)))
      throw TimeoutError("AsyncResult::get: the result was not there within the timeout");
    return take();
  }
  /// False where there is no result, nor an error, within the timeout.
  bool wait(std::chrono::nanoseconds timeout) { return wait(Deadline::after(timeout)); }
  bool ready() { return wait(Deadline::now()); }  ///< whether there is a result or an error now
  /// Whether it is a result, and not an error. Throws std::logic_error where it is not ready.
  bool successful() {
    if (!ready()) throw std::logic_error("AsyncResult::successful: it is not ready: call wait() first");
    std::lock_guard lock(state_->core->mutex());
    return !state_->job->error();
  }

 private:
  template <class>
  friend class detail::PoolCalls;
  using Take = detail::Kept<R> (*)(detail::Request&);
  struct State {
    std::shared_ptr<detail::Host> core;
    std::shared_ptr<detail::Request> job;
    Take take;
    std::optional<detail::Kept<R>> value;
  };
  AsyncResult(std::shared_ptr<detail::Host> core, std::shared_ptr<detail::Request> job, Take take)
      : state_(std::make_shared<State>(State{std::move(core), std::move(job), take, std::nullopt})) {}

  bool wait(Deadline deadline) {
    return state_->core->wait([job = state_->job.get()] { return job->done(); }, deadline);
  }
  R take() {
    std::lock_guard lock(state_->core->mutex());
    if (state_->job->error()) std::rethrow_exception(state_->job->error());
    if constexpr (!std::is_void_v<R>) {
      if (!state_->value) state_->value.emplace(state_->take(*state_->job));
      // The last handle, or a value that cannot be copied: nobody asks again.
      if constexpr (std::is_copy_constructible_v<R>)
        if (state_.use_count() > 1 || !last_) return *state_->value;
      return std::move(*state_->value);
    }
  }
  /// The caller drops the handle after get().
  AsyncResult&& once() {
    last_ = true;
    return std::move(*this);
  }

  std::shared_ptr<State> state_;
  bool last_ = false;
};

}  // namespace shoal
