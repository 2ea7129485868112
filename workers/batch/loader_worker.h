// What a data loader's worker process does, and the job by which it is asked.
#pragma once

#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/runtime/crash/traced_call.h>
#include <shoal/internal/workers/batch/make_stream_batch.h>
#include <shoal/internal/workers/pool/pool_job.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/heap.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <shoal/workers/data/worker_info.h>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace shoal::detail {

/// In a worker: its data set. A worker's process belongs to one loader.
template <class Dataset, class Collate>
inline MakerOf<SharedMemoryScope, Dataset, Collate>* worker_maker = nullptr;

struct WorkerSettings {
  FaultPolicy policy;
  WorkerInfo info;
  ImageFunction init;  // void(int worker); empty: none
};

void call_init(const WorkerSettings& settings);

/// A worker's life.
template <class Dataset, class Collate>
ServedAll run_worker(detail::WorkerEnds ends, const WorkerSettings& settings, Dataset dataset) {
  const detail::WorkerLife life(ends);
  set_worker_info(settings.info);
  Collate collate{};
  MakerOf<SharedMemoryScope, Dataset, Collate> maker(dataset, collate, settings.policy);
  worker_maker<Dataset, Collate> = &maker;
  call_init(settings);
  return detail::serve_pool(ends);
}

/// What travels with a message: the bytes of the blocks that its tensors lie in.
std::uint64_t bytes_travelling_with(const Encoder& message);

/// One batch. Runs in whichever worker takes it; the answer is a MadeBatch and its bytes in the heap.
template <class Dataset, class Collate>
class LoaderJob final : public detail::Job {
 public:
  using Batch = BatchFrom<Dataset, Collate>;

  explicit LoaderJob(LoaderTask task) : Job(&run, nullptr, 1), task_(std::move(task)) {}

  const LoaderTask& task() const { return task_; }
  void encode_arguments(std::size_t, Encoder& encoder) const override { encode(encoder, task_); }
  /// When it is done without an error.
  MadeBatch<Batch>& made() { return *made_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  static void run(AnyFunction, Decoder& arguments, Encoder& result) {
    auto& maker = *worker_maker<Dataset, Collate>;
    const auto task = decode<LoaderTask>(arguments);
    arguments.finish();
    MadeBatch<Batch> made;
    try {
      traced_call([&] {
        if (std::optional<Batch> batch = maker.make(task)) made.outcome = std::move(*batch);
      });
    } catch (...) {
      made.outcome = LoaderFailure{maker.at_fault(), take_current_exception()};
    }
    made.notes = maker.take_notes();
    made.times = maker.times();
    made.at_end = maker.at_end();
    encode(result, made);
    result.write(bytes_travelling_with(result));
  }
  void decode_result(std::size_t, Decoder& result) override {
    made_.emplace(decode<MadeBatch<Batch>>(result));
    bytes_ = result.read<std::uint64_t>();
    result.finish();
  }

  LoaderTask task_;
  std::optional<MadeBatch<Batch>> made_;
  std::uint64_t bytes_ = 0;
};

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

/// Bytes of the heap that the value's tensors lie in.
template <class T>
std::uint64_t shared_bytes_of(const T& value) {
  Encoder encoder;
  encode(encoder, value);
  return bytes_travelling_with(encoder);
}

}  // namespace shoal::detail
