// How a data loader loads.
#pragma once

#include <shoal/internal/workers/copies/device_choice.h>
#include <shoal/internal/workers/plan/loader_task.h>
#include <shoal/runtime/options.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// As torch's, by the same names, and some more.
struct DataLoaderOptions {
  /// Not together with a batch sampler, nor are shuffle and drop_last.
  std::int64_t batch_size = 1;
  /// A new order every epoch, which depends on seed and epoch alone. Not together with a sampler.
  bool shuffle = false;
  /// 0: batches are made in the calling process, when they are asked for.
  int num_workers = 0;
  /// Leaves out a last batch that is smaller than the others; of an iterable data set also those that not every rank
  /// has.
  bool drop_last = false;
  /// Batches that are made ahead, for each worker: at most, since as long as the loop never waits fewer are made.
  int prefetch_factor = 2;
  /// Bytes of the shared heap that batches made ahead may take; at least one is made. 0: no limit but the factor.
  std::size_t prefetch_bytes = 0;
  /// Of the order, and of everything random in samples: see sample_random.h.
  std::uint64_t seed = 0;
  /// A worker that takes longer for one batch is ended and replaced, and its stack written to stderr; its batch is made
  /// by another. 0: workers may take as long as they want.
  std::chrono::nanoseconds timeout{0};
  /// The same for a worker's start, with its worker_init_fn and the data set that it gets; when three in a row take
  /// longer, the epoch fails with PoolStopped. 0: they may take as long as they want.
  std::chrono::nanoseconds start_timeout{0};
  StartMethod start_method = get_start_method();  ///< how workers are started
  /// As in ProcessOptions.
  bool fork_despite_threads = false;
  /// Workers stay for the next epoch. False: each epoch starts its own.
  bool persistent_workers = true;
  /// Batches come in the sampler's order. False: whichever is ready first.
  bool in_order = true;
  /// Batches of tensors are pinned in this process: for copies to a GPU. Each slot of the heap that batches come in is
  /// registered once, and stays so while it goes round; 5 s after its last batch it is unregistered. A loop that copies
  /// with non_blocking by itself keeps the batch until the copy is done: its slot is written again as soon as it is
  /// free. With to_device the loader sees to that.
  bool pin_memory = false;
  /// Batches come as tensors of this device, in every process its own if a function says which: see DeviceChoice. They
  /// are copied on a stream of the loader's, and can be used by the stream that is current where the loop gets them. It
  /// goes together with pin_memory: copies from memory that is not pinned hold the loop up. The CPU: nothing is copied.
  DeviceChoice to_device{};
  /// With workers: batches that are copied before the loop asks for them, at most. Each takes its memory on the device,
  /// and as long as it is copied in the shared heap, too, beside what prefetch_bytes allows.
  int copies_ahead = 1;
  /// Called in each worker before its first batch, with WorkerInfo::id: a function, or a lambda without captures.
  void (*worker_init_fn)(int worker) = nullptr;
  /// What becomes of samples whose reading throws; see DataLoader::report().
  OnError on_error = OnError::raise;
  /// How often a sample is read again, or a batch whose worker died is made again.
  int max_retries = 3;
  /// Workers that may die before the loader gives up. Negative: any number.
  int max_replacements = 100;
  /// Of an iterable data set, the part that this loader reads: batches go to the ranks in turn. A map-style one has a
  /// DistributedSampler for that.
  std::int64_t rank = 0, num_replicas = 1;  ///< the number of ranks
  /// Streams that an iterable data set with a stream(Shard) is read as, by all ranks together. 0: one for each worker
  /// of all ranks, so the batches depend on their number.
  std::int64_t num_shards = 0;
};

namespace detail {

/// Throws std::invalid_argument that names option and value.
void check(const DataLoaderOptions& options);
/// For a loader whose samples come without batches.
void check_unbatched(const DataLoaderOptions& options);

}  // namespace detail

}  // namespace shoal
