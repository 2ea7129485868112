// How a data loader loads.
#pragma once

#include <shoal/internal/workers/copies/device_choice.h>
#include <shoal/internal/workers/plan/loader_task.h>
#include <shoal/runtime/option_text.h>
#include <shoal/runtime/options.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// The options of torch's DataLoader by the same names, and some more.
struct DataLoaderOptions {
  /// Samples in a batch. A batch sampler replaces batch_size, shuffle and drop_last.
  std::int64_t batch_size = 1;
  /// A new order every epoch, which depends only on seed and epoch. Not together with a sampler.
  bool shuffle = false;
  /// Worker processes. 0: the calling process makes each batch when the loop asks for it.
  int num_workers = 0;
  /// Leaves out the last batch if it is smaller than the others; of an iterable data set that is one stream also batches
  /// that not every rank has. Of several streams ranks may have unequal numbers of batches: train in a Join.
  bool drop_last = false;
  /// How many batches each worker makes ahead, at most. As long as the loop never waits, fewer are made.
  int prefetch_factor = 2;
  /// The most bytes of the shared heap that batches made ahead may take; one is made in any case. 0: no limit.
  std::size_t prefetch_bytes = 0;
  /// The seed of the order, and of everything random in samples: see sample_random.h.
  std::uint64_t seed = 0;
  /// The most time for one batch. A worker that takes longer is ended and replaced, its stack is written to stderr, and
  /// another worker makes its batch. 0: no limit.
  std::chrono::nanoseconds timeout{0};
  /// The most time for a worker's start, with its worker_init_fn and its data set. If three workers in a row take
  /// longer, the epoch fails with PoolStopped. 0: no limit.
  std::chrono::nanoseconds start_timeout{0};
  StartMethod start_method = get_start_method();  ///< how workers are started
  /// Whether `fork` goes ahead if other threads run: see SpawnOptions.
  bool fork_despite_threads = false;
  /// Workers stay for the next epoch. False: each epoch starts its own.
  bool persistent_workers = true;
  /// Batches come in the sampler's order. False: they come in the order in which they are ready.
  bool in_order = true;
  /// Pins the batches' tensors in this process, for copies to a GPU. The slots of the heap in which batches come are
  /// registered once and stay registered while they go round; 5 s after its last batch a slot is unregistered. A loop
  /// that copies with non_blocking itself has to keep the batch until the copy is done, because workers write a free
  /// slot again. With to_device the loader does that.
  bool pin_memory = false;
  /// Copies each batch to this device. A function chooses the device in each process: see DeviceChoice. The loader
  /// copies on a stream of its own; the stream that is current where the loop gets a batch can use it. Use it together
  /// with pin_memory: copies from memory that is not pinned hold the loop up. For the CPU nothing is copied.
  DeviceChoice to_device{};
  /// With workers: how many batches are copied before the loop asks for them, at most. Each takes memory on the device
  /// and, while it is copied, in the shared heap, beside what prefetch_bytes allows.
  int copies_ahead = 1;
  /// Each worker calls it with WorkerInfo::id before its first batch. A function, or a lambda without captures.
  void (*worker_init_fn)(int worker) = nullptr;
  /// What happens if reading a sample throws; see DataLoader::report().
  OnError on_error = OnError::raise;
  /// How often a sample is read again, or a batch is made again whose worker died.
  int max_retries = 3;
  /// How many workers may die before the loader gives up. Negative: any number.
  int max_replacements = 100;
  /// Which loader of an iterable data set this is: batches go to the `num_replicas` ranks in turn. For a map-style data
  /// set use a DistributedSampler.
  std::int64_t rank = 0, num_replicas = 1;  ///< the number of ranks
  /// As how many streams all ranks together read an iterable data set with a stream(Shard). 0: one for each
  /// worker of all ranks, so the batches depend on the number of workers.
  std::int64_t num_shards = 0;

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"batch_size", "samples in a batch", {.least = 1}},
      {"shuffle", "a new order every epoch"},
      {"num_workers", "worker processes; 0: batches are made when the loop asks", {.least = 0}},
      {"drop_last", "leaves out the last batch if it is smaller"},
      {"prefetch_factor", "batches that each worker makes ahead", {.least = 1}},
      {"prefetch_bytes", "of shared memory for batches made ahead; 0: no limit", {.unit = "bytes"}},
      {"seed", "of the order, and of what is random in samples"},
      {"timeout", "of one batch, after which its worker is replaced; 0: no limit", {.least = 0}},
      {"start_timeout", "of a worker's start; 0: no limit", {.least = 0}},
      {"start_method", "how workers are started"},
      {"fork_despite_threads", "fork goes ahead though other threads run"},
      {"persistent_workers", "workers stay for the next epoch"},
      {"in_order", "batches come in the sampler's order; false: as they are ready"},
      {"pin_memory", "for copies to a GPU"},
      {"to_device", "where batches are copied to, ahead of the loop"},
      {"copies_ahead", "batches that are copied ahead; 0: when the loop asks", {.least = 0}},
      {"on_error", "what happens if reading a sample throws"},
      {"max_retries", "how often a sample is read again, or a batch made again", {.least = 0}},
      {"max_replacements", "workers that may die; below 0: any number"},
      {"rank", "of an iterable data set: which of num_replicas this loader is", {.least = 0}},
      {"num_replicas", "of an iterable data set: loaders that share it", {.least = 1}},
      {"num_shards", "of an iterable data set: streams of all ranks; 0: one a worker", {.least = 0}},
  };
};

namespace detail {

/// Throws std::invalid_argument, which names option and value.
void check(const DataLoaderOptions& options);
/// Checks the options of a loader whose samples come without batches.
void check_unbatched(const DataLoaderOptions& options);

}  // namespace detail

}  // namespace shoal
