// Where the time of a data loader goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// Where the time of some batches went, in seconds a batch unless said otherwise. A plain value.
struct LoaderProfile {
  std::int64_t batches = 0;       ///< that were measured
  int workers = 0;                ///< worker processes of the loader
  double dataset = 0;             ///< a worker reads samples
  double collate = 0;             ///< a worker makes a batch of them
  double wait = 0;                ///< the loop waits for a batch
  double copy = 0;                ///< copies to the device, beside the loop, by the device's clock
  double step = 0;                ///< the loop works between two batches
  double total = 0;               ///< the whole loop
  double batches_of_workers = 0;  ///< batches a second that the workers could make if the loop never kept them waiting
  double batches_of_loop = 0;     ///< batches a second that the loop could take if every batch lay ready
  double batches_of_copies = 0;   ///< batches a second that could be copied; 0: nothing is copied

  /// "workers", "loop" or "copies": the one that limits the rate.
  std::string bottleneck() const;
  /// A table for people.
  std::string to_string() const;
};

/// What a profile writes besides.
struct ProfileOptions {
  /// A file for a CpuProfile of the batches, for Perfetto: what the loop waits for, and each operation of its steps.
  /// Empty: no file.
  std::string trace;
};

/// Batches a second with several numbers of workers.
struct WorkerSuggestion {
  /// The rate with one number of workers.
  struct Measured {
    int workers = 0;                ///< worker processes
    double batches_per_second = 0;  ///< 0: nothing was measured
  };
  std::vector<Measured> measured;  ///< by number of workers, from 0 on
  int recommended = 0;             ///< the fewest workers that come within a tenth of the best

  /// A table for people.
  std::string to_string() const;
};

namespace detail {
/// Fills in what follows from the measured times.
void conclude(LoaderProfile& profile);
void conclude(WorkerSuggestion& suggestion);
}  // namespace detail

}  // namespace shoal
