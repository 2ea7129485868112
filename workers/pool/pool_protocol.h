// What a pool and its workers say to each other.
#pragma once

#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/internal/ipc/sync/shared_part.h>
#include <shoal/ipc/codec.h>

#include <atomic>
#include <cstdint>

namespace shoal::detail {

/// Ahead of every task: then the entry's name, the function's name, the arguments.
struct TaskHeader {
  std::uint64_t task;  // counts the pool's tasks from 1
};

/// Ahead of every result: then the values, or a RaisedException.
struct ResultHeader {
  std::uint64_t task;
  std::uint64_t nanoseconds_before;  // that the worker's task before it took, 0 for the first
  std::uint32_t worker;              // counts the pool's workers, those that replaced others too
  std::uint32_t raised;              // 1: the task threw
};

/// In shared memory, one for each worker: how far it is, for the case that it does not come to say so, and what the
/// pool wants of it.
struct ProgressLayout {
  static constexpr std::uint32_t kMagic = 0x6c6f6f70;  // "pool"
  static constexpr std::uint32_t kVersion = 2;
  static constexpr const char* kName = "progress of a pool's worker";

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::atomic<std::uint64_t> ready;    // 1: its initializer has returned
  std::atomic<std::uint64_t> running;  // the task that it began last
  std::atomic<std::uint64_t> stop;     // 1: the pool's process was asked to stop
  std::atomic<std::uint64_t> end;      // 1: the pool does not want the worker any more, whatever it does
};

/// What a worker returns that has come to its end. One that a task ends by exit(0) returns nothing, and has failed.
using ServedAll = bool;

/// A worker's ends: its own ring of tasks, the pool's ring of results. Each worker has a ring of its own, so that the
/// pool knows whose each task is, whatever happens to the worker.
struct WorkerEnds {
  Ring tasks, results;
  SharedPart<ProgressLayout> progress;
  std::uint32_t worker = 0;  // counts the pool's workers from 1, those that replace others too
  std::int32_t index = 0;    // among the workers that run at once, from 0; one that replaces another has its index
};

/// Further handles of the same ends.
inline WorkerEnds share(const WorkerEnds& ends) {
  const auto& [tasks, results, progress, worker, index] = ends;  // all there are: one more does not compile
  return {.tasks = tasks.share(), .results = results.share(), .progress = progress, .worker = worker, .index = index};
}

inline constexpr std::uint64_t kTaskSchema = schema_hash("shoal::Pool task");
inline constexpr std::uint64_t kResultSchema = schema_hash("shoal::Pool result");

}  // namespace shoal::detail

namespace shoal {

template <>
struct Codec<detail::WorkerEnds> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::detail::WorkerEnds"); }
  static void encode(Encoder& encoder, const detail::WorkerEnds& ends) {
    const auto& [tasks, results, progress, worker, index] = ends;
    encoder.write(encoder.add(tasks.hold()));
    encoder.write(encoder.add(results.hold()));
    progress.encode(encoder);
    encoder.write(worker);
    encoder.write(index);
  }
  static detail::WorkerEnds decode(Decoder& decoder) {
    Ring tasks = Ring::open(decoder.handle(decoder.read<std::uint32_t>()).share(), detail::kTaskSchema);
    Ring results = Ring::open(decoder.handle(decoder.read<std::uint32_t>()).share(), detail::kResultSchema);
    auto progress = SharedPart<detail::ProgressLayout>::decode(decoder);
    const auto worker = decoder.read<std::uint32_t>();
    return {std::move(tasks), std::move(results), std::move(progress), worker, decoder.read<std::int32_t>()};
  }
};

}  // namespace shoal
