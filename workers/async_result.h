// AsyncResult<R>: the result of a pool's task, which may not be there yet.
#pragma once

#include <shoal/internal/workers/pool/host.h>
#include <shoal/internal/workers/pool/map_parts.h>
#include <shoal/ipc/error.h>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace shoal {

namespace detail {
template <class Jobs>
class PoolCalls;
}

/// The result of a pool's task, like multiprocessing.pool.AsyncResult. A handle: copies refer to the same result. It
/// may outlive the pool; a result that was not there when the pool went is an error. Threads: any, at once.
template <class R>
class AsyncResult {
 public:
  /// Waits for the result and returns it. Throws ProcessRaised if the function threw (with a ThreadPool what it threw),
  /// WorkerDied, PoolStopped, and what encoding or decoding threw. Every call returns the result again, unless it can
  /// only be moved: then the first call alone does, and others throw std::logic_error.
  R get() {
    wait(Deadline::never());
    return take();
  }
  /// Like get(); throws TimeoutError after `timeout`.
  R get(std::chrono::nanoseconds timeout) {
    if (!wait(Deadline::after(timeout)))
      throw TimeoutError("AsyncResult::get: the result was not there within the timeout; the call goes on");
    return take();
  }
  /// Waits until there is a result or an error. Returns false after `timeout`.
  bool wait(std::chrono::nanoseconds timeout) { return wait(Deadline::after(timeout)); }
  bool ready() { return wait(Deadline::now()); }  ///< whether there is a result or an error now
  /// Whether it is a result and not an error. Throws std::logic_error if it is not ready.
  bool successful() {
    if (!ready()) throw std::logic_error("AsyncResult::successful: it is not ready: call wait() first");
    const auto lock = state_->core->lock();
    return !state_->job->error();
  }

 private:
  template <class>
  friend class detail::PoolCalls;
  using Take = detail::StoredResult<R> (*)(detail::Request&);
  struct State {
    std::shared_ptr<detail::Host> core;
    std::shared_ptr<detail::Request> job;
    Take take;
    std::optional<detail::StoredResult<R>> value;
    bool gone = false;  ///< the value, which could only be moved
  };
  AsyncResult(std::shared_ptr<detail::Host> core, std::shared_ptr<detail::Request> job, Take take)
      : state_(std::make_shared<State>(State{std::move(core), std::move(job), take, std::nullopt})) {}

  bool wait(Deadline deadline) {
    return state_->core->wait([job = state_->job.get()] { return job->done(); }, deadline);
  }
  R take() {
    const auto lock = state_->core->lock();
    if (state_->job->error()) std::rethrow_exception(state_->job->error());
    if constexpr (!std::is_void_v<R>) {
      if (state_->gone)
        throw std::logic_error("AsyncResult::get: it can only be moved, and was returned before: keep it");
      if (!state_->value) state_->value.emplace(state_->take(*state_->job));
      // Moved if this is the last handle, or if the value cannot be copied: nobody asks again.
      if constexpr (std::is_copy_constructible_v<R>)
        if (state_.use_count() > 1 || !last_) return *state_->value;
      state_->gone = !std::is_copy_constructible_v<R>;
      return std::move(*state_->value);
    }
  }
  /// Says that the caller drops the handle after get().
  AsyncResult&& once() {
    last_ = true;
    return std::move(*this);
  }

  std::shared_ptr<State> state_;
  bool last_ = false;
};

}  // namespace shoal
