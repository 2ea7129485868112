// What a pool's worker process does.
#pragma once

#include <shoal/runtime/image_function.h>
#include <shoal/workers/pool/pool_protocol.h>

namespace shoal::pooling {

/// Code of a call's own, known to pool and worker: decodes the arguments, calls, encodes the result.
using CallEntry = void (*)(AnyFunction function, Decoder& arguments, Encoder& result);

/// Runs tasks, each of which is answered by its result or what it threw, until the pool closes the worker's ring or
/// is dead.
void serve_pool(WorkerEnds& ends);

}  // namespace shoal::pooling
