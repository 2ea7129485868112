#include <shoal/internal/workers/pool/pool_worker.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/runtime/crash/raised.h>
#include <shoal/internal/runtime/crash/traced_call.h>
#include <shoal/internal/workers/pool/function_name.h>
#include <signal.h>

#include <chrono>
#include <optional>

namespace shoal::detail {
namespace {

class Worker {
 public:
  explicit Worker(WorkerEnds& ends) : ends_(ends) {}

  /// False where the pool wants no more of it.
  bool serve_one() {
    Received message;
    // Whoever closes the ring or dies has no more tasks for this worker, and nobody to tell.
    if (ends_.tasks.get(message, Deadline::never()) != RingStatus::kDone) return false;
    if (ends_.progress->end.load() != 0) return false;  // what is left in the ring nobody waits for
    SHOAL_KILL_POINT("pool.worker.took");
    Decoder task = std::move(message).decoder();
    const std::uint64_t number = task.read<TaskHeader>().task;
    // Release: whoever reads it after this process's death sees what the task did before.
    ends_.progress->running.store(number, std::memory_order_release);
    SHOAL_KILL_POINT("pool.worker.began");
    const auto start = std::chrono::steady_clock::now();
    std::optional<Encoder> result(std::in_place);
    result->write(ResultHeader{number, took_before_, ends_.worker, 0});
    bool sent = false;
    try {
      traced_call([&] {
        auto entry = reinterpret_cast<CallEntry>(functions_.read(task));
        const AnyFunction function = functions_.read(task);
        entry(function, task, *result);
        SHOAL_KILL_POINT("pool.worker.called");
        sent = send(*result);
      });
    } catch (...) {
      const RaisedException raised = take_current_exception();
      result.emplace();
      result->write(ResultHeader{number, took_before_, ends_.worker, 1});
      encode(*result, raised);
      sent = send(*result);
    }
    took_before_ = std::uint64_t(std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
    SHOAL_KILL_POINT("pool.worker.answered");
    return sent;
  }

 private:
  bool send(Encoder& result) { return ends_.results.put(result, Deadline::never()) == RingStatus::kDone; }

  WorkerEnds& ends_;
  FunctionFinder functions_;
  std::uint64_t took_before_ = 0;
};

}  // namespace

ServedAll serve_pool(WorkerEnds& ends) {
  ends.progress->ready.store(1);
  // The pool sends SIGTERM to those that it sees ready; to the others it leaves word. Each writes before it reads.
  if (ends.progress->stop.load() != 0) ::raise(SIGTERM);
  Worker worker(ends);
  while (worker.serve_one()) continue;
  return true;
}

}  // namespace shoal::detail
