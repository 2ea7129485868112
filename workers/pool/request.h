// Something that a pool has been asked for: one task, or the tasks that the chunks of a map are.
#pragma once

#include <cstddef>
#include <exception>
#include <vector>

namespace shoal::detail {

/// Which of its tasks are to be begun, which are over, and the error that counts. Made by the thread that asks; after
/// that everything happens under the mutex of its Host, until it is done.
class Request {
 public:
  explicit Request(std::size_t tasks) : tasks_(tasks), unfinished_(tasks) {}
  Request(const Request&) = delete;
  virtual ~Request() = default;

  bool done() const { return unfinished_ == 0; }
  std::size_t unfinished() const { return unfinished_; }
  /// How many it is.
  std::size_t tasks() const { return tasks_; }
  const std::exception_ptr& error() const { return error_; }

  /// Whether a task is left to be begun.
  bool has_next() const { return !again_.empty() || next_ < tasks_; }
  std::size_t take_next();
  void run_again(std::size_t task) { again_.push_back(task); }
  /// Nobody wants it any more. Returns those that nobody has begun, and nobody ever will.
  std::size_t drop_rest();
  /// Whether drop_rest() was called: what a worker has of it is not run again.
  bool is_unwanted() const { return is_unwanted_; }

  void fail(std::size_t task, std::exception_ptr error);

 protected:
  void finish_one() { --unfinished_; }

 private:
  const std::size_t tasks_;
  std::size_t next_ = 0;
  std::vector<std::size_t> again_;
  std::size_t unfinished_;
  std::exception_ptr error_;  // of the task that comes first, as if they had run one after the other
  std::size_t failed_ = 0;
  bool is_unwanted_ = false;
};

}  // namespace shoal::detail
