// A request whose tasks run in worker processes.
#pragma once

#include <shoal/internal/runtime/call/image_function.h>
#include <shoal/internal/workers/pool/pool_worker.h>
#include <shoal/internal/workers/pool/request.h>
#include <shoal/ipc/codec.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal::detail {

/// Keeps the arguments until all results are there, so that a task which was lost can be sent again.
class Job : public Request {
 public:
  Job(CallEntry entry, AnyFunction function, std::size_t tasks)
      : Request(tasks), entry_(entry), function_(function), deaths_(tasks, 0) {}

  CallEntry entry() const { return entry_; }
  AnyFunction function() const { return function_; }

  /// May be called again for a task. What it throws is the task's failure.
  virtual void encode_arguments(std::size_t task, Encoder& encoder) const = 0;
  /// One more worker has died of it; how many have.
  int count_death(std::size_t task) { return ++deaths_[task]; }
  void succeed(std::size_t task, Decoder& result);

  /// Who gave the last answer.
  struct Answerer {
    std::uint32_t worker = 0;  // counts the pool's workers from 1
    int pid = 0;
  };
  Answerer answered_by;
  /// Which of the pool's workers is to run it, counted from 0; -1: any. For workers that keep something between tasks:
  /// a worker's replacement has its index, and if there is none for want of processes, any worker gets the task.
  int wanted_worker = -1;

 protected:
  virtual void decode_result(std::size_t task, Decoder& result) = 0;

 private:
  CallEntry entry_;
  AnyFunction function_;
  std::vector<int> deaths_;
};

}  // namespace shoal::detail
