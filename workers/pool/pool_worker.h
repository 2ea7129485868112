// What a pool's worker process does.
#pragma once

#include <shoal/internal/runtime/call/image_function.h>
#include <shoal/internal/workers/pool/pool_protocol.h>
#include <shoal/runtime/stop.h>

namespace shoal::detail {

/// Code of a call's own, known to pool and worker: decodes the arguments, calls, encodes the result.
using CallEntry = void (*)(AnyFunction function, Decoder& arguments, Encoder& result);

/// The first that there is in a worker, and the last: as long as the pool wants it, SIGTERM does not end it, whoever
/// sends it, and is what stop_requested() tells.
class WorkerLife {
 public:
  explicit WorkerLife(const WorkerEnds& ends) : stop_(ends.progress->end) {}

 private:
  StopWhenTold stop_;
};

/// Runs tasks, each of which is answered by its result or what it threw, until the pool closes the worker's ring or
/// is dead. Returns true.
ServedAll serve_pool(WorkerEnds& ends);

}  // namespace shoal::detail
