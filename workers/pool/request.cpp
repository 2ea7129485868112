#include <shoal/internal/workers/pool/request.h>

#include <utility>

namespace shoal::detail {

std::size_t Request::take_next() {
  if (again_.empty()) return next_++;
  const std::size_t task = again_.back();
  again_.pop_back();
  return task;
}

std::size_t Request::drop_rest() {
  const std::size_t rest = again_.size() + (tasks_ - next_);
  again_.clear();
  next_ = tasks_;
  is_unwanted_ = true;
  return rest;
}

void Request::fail(std::size_t task, std::exception_ptr error) {
  if (!error_ || task < failed_) {
    error_ = std::move(error);
    failed_ = task;
  }
  finish_one();
}

}  // namespace shoal::detail
