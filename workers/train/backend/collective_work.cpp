#include <shoal/internal/workers/train/backend/collective_work.h>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>

#include <utility>

namespace shoal {

CollectiveWork::CollectiveWork(c10d::OpType type, std::vector<at::Tensor> outputs, std::uint64_t sequence)
    : Work(-1, type), outputs_(std::move(outputs)), sequence_(sequence) {}

void CollectiveWork::end(std::exception_ptr failure, std::chrono::steady_clock::duration took) {
  took_ = took;  // published by the lock of finish()
  finish(std::move(failure));
  std::unique_lock lock(mutex_);
  settle(lock);
}

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return completed_; };
  if (timeout == kNoTimeout)
    cv_.wait(lock, is_over);
  else if (!cv_.wait_for(lock, timeout, is_over))
    throw TimeoutError(fmt::format("collective {} ({}) is not over after {} ms; it goes on", sequence_,
                                   c10d::opTypeToString(opType_), timeout.count()));
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFuture() {
  std::unique_lock lock(mutex_);
  if (!future_) future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const auto future = future_;
  settle(lock);
  return future;
}

float CollectiveWork::getDuration() const {
  std::lock_guard lock(mutex_);
  return std::chrono::duration<float, std::milli>(took_).count();
}

/// Completes the future where there is one and the collective is over; without the lock, as it calls others' code.
void CollectiveWork::settle(std::unique_lock<std::mutex>& lock) {
  if (!future_ || !completed_ || settled_) return;
  settled_ = true;
  const auto future = future_;
  lock.unlock();
  if (exception_)
    future->setError(exception_);
  else
    future->markCompleted(c10::IValue(outputs_));
}

}  // namespace shoal
