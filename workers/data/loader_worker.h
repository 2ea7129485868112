// What a data loader's worker process does.
#pragma once

#include <cstdint>
#include <exception>
#include <type_traits>
#include <utility>

#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <shoal/workers/data/loader_protocol.h>
#include <shoal/workers/data/make_batch.h>

namespace shoal::loading {

/// Makes batches until the loader closes the queues. What the data set throws is the answer to the task it was thrown
/// for. Each worker's data set is a copy of the loader's; the elements of its tensors are in the heap, the same for all
/// of them.
template <class Dataset, class Collate>
void run_worker(std::int32_t worker, Dataset dataset, Queue<LoaderTask> tasks,
                Queue<LoaderResult<BatchFrom<Dataset, Collate>>> results) {
  using Result = LoaderResult<BatchFrom<Dataset, Collate>>;
  Collate collate{};
  try {
    for (;;) {
      const LoaderTask task = tasks.get();
      std::int64_t at_fault = -1;
      LoaderFailure failure;
      try {
        results.put(Result{task.generation, task.batch, worker,
                           make_batch<SharedMemoryScope>(dataset, collate, task.indices, at_fault)});
        continue;
      } catch (const QueueClosed&) {
        if (results.is_closed()) return;
        failure = {"shoal::QueueClosed", "thrown by the data set", at_fault};
      } catch (const std::exception& error) {
        failure = {type_name(error), describe(error), at_fault};
      } catch (...) {
        failure = {"an exception", "not derived from std::exception", at_fault};
      }
      results.put(Result{task.generation, task.batch, worker, std::move(failure)});
    }
  } catch (const QueueClosed&) {
    // The loader is done.
  } catch (const PeerDied&) {
    // The loader's process is gone, and this one is about to be.
  }
}

/// The value as it arrives in another process: its tensors in the heap, copied there unless they were. What is sent
/// from it any number of times is copied no further.
template <class T>
T shared_copy(const T& value) {
  Encoder encoder;
  encode(encoder, value);
  Decoder::Handles handles;
  handles.reserve(encoder.handles().size());
  for (const HoldRef& handle : encoder.handles()) handles.push_back(Hold::from_transit(handle));
  encoder.sent();
  Decoder decoder(encoder.bytes(), std::move(handles));
  return decode<T>(decoder);
}

}  // namespace shoal::loading
