#include <shoal/workers/pool/pool_job.h>

namespace shoal::pooling {

std::size_t Job::take_next() {
  if (again_.empty()) return next_++;
  const std::size_t task = again_.back();
  again_.pop_back();
  return task;
}

std::size_t Job::drop_rest() {
  const std::size_t rest = again_.size() + (deaths_.size() - next_);
  again_.clear();
  next_ = deaths_.size();
  return rest;
}

void Job::succeed(std::size_t task, Decoder& result) {
  try {
    decode_result(task, result);
  } catch (...) {
    return fail(task, std::current_exception());
  }
  finish_one();
}

void Job::fail(std::size_t task, std::exception_ptr error) {
  if (!error_ || task < failed_) {
    error_ = std::move(error);
    failed_ = task;
  }
  finish_one();
}

void Job::finish_one() {
  if (--unfinished_ == 0 && when_done) std::exchange(when_done, nullptr)();
}

}  // namespace shoal::pooling
