// Something that a pool has been asked for: one task, or the tasks that the chunks of a map are.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include <shoal/ipc/codec.h>
#include <shoal/runtime/image_function.h>
#include <shoal/workers/pool/pool_worker.h>

namespace shoal::pooling {

/// Keeps the arguments until all results are there, so that a task which was lost can be sent again. Made by the thread
/// that asks; after that everything happens under the pool's mutex, until it is done.
class Job {
 public:
  Job(CallEntry entry, AnyFunction function, std::size_t tasks)
      : entry_(entry), function_(function), deaths_(tasks, 0), unfinished_(tasks) {}
  Job(const Job&) = delete;
  virtual ~Job() = default;

  [[nodiscard]] CallEntry entry() const { return entry_; }
  [[nodiscard]] AnyFunction function() const { return function_; }
  [[nodiscard]] bool done() const { return unfinished_ == 0; }
  [[nodiscard]] std::size_t unfinished() const { return unfinished_; }
  /// How many it is.
  [[nodiscard]] std::size_t tasks() const { return deaths_.size(); }
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }

  /// May be called again for a task. What it throws is the task's failure.
  virtual void encode_arguments(std::size_t task, Encoder& encoder) const = 0;

  /// Whether a task is left to be given to a worker.
  [[nodiscard]] bool has_next() const { return !again_.empty() || next_ < deaths_.size(); }
  std::size_t take_next();
  void run_again(std::size_t task) { again_.push_back(task); }
  /// Those that no worker has begun, and never will.
  std::size_t drop_rest();
  /// One more worker has died of it; how many have.
  int count_death(std::size_t task) { return ++deaths_[task]; }

  void succeed(std::size_t task, Decoder& result);
  void fail(std::size_t task, std::exception_ptr error);
  /// Who gave the last answer.
  struct Answerer {
    std::uint32_t worker = 0;  // counts the pool's workers from 1
    int pid = 0;
  };
  Answerer answered_by;
  /// Which of the pool's workers is to run it, counted from 0; -1: any. For workers that keep something between tasks:
  /// a worker's replacement has its seat, and where there is none for want of processes, any worker gets the task.
  int seat = -1;
  /// Called once, by whoever finds it done.
  std::function<void()> when_done;

 protected:
  virtual void decode_result(std::size_t task, Decoder& result) = 0;

 private:
  void finish_one();

  CallEntry entry_;
  AnyFunction function_;
  std::size_t next_ = 0;
  std::vector<std::size_t> again_;
  std::vector<int> deaths_;
  std::size_t unfinished_;
  std::exception_ptr error_;  // of the task that comes first, as if they had run one after the other
  std::size_t failed_ = 0;
};

}  // namespace shoal::pooling
