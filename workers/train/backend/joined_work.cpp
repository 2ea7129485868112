#include <shoal/internal/workers/train/backend/joined_work.h>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <algorithm>

namespace shoal {

bool JoinedWork::isCompleted() {
  return std::ranges::all_of(parts_, [](const auto& part) { return part->isCompleted(); });
}

bool JoinedWork::isSuccess() const {
  return std::ranges::all_of(parts_, [](const auto& part) { return part->isSuccess(); });
}

std::exception_ptr JoinedWork::exception() const {
  for (const auto& part : parts_)
    if (auto failure = part->exception()) return failure;
  return nullptr;
}

std::vector<at::Tensor> JoinedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& part : parts_) {
    const auto results = part->result();
    all.insert(all.end(), results.begin(), results.end());
  }
  return all;
}

bool JoinedWork::wait(std::chrono::milliseconds timeout) {
  std::exception_ptr failure;
  for (const auto& part : parts_) try {
      part->wait(timeout);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  if (failure) std::rethrow_exception(failure);
  return true;
}

/// Waits: its parts may be messages, which nobody moves while nobody waits.
c10::intrusive_ptr<c10::ivalue::Future> JoinedWork::getFuture() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  try {
    wait(kNoTimeout);
    future->markCompleted(c10::IValue(result()));
  } catch (...) {
    future->setError(std::current_exception());
  }
  return future;
}

}  // namespace shoal
