// Where the time of a data loader goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// Of some batches, in seconds a batch unless said otherwise. A plain value.
struct LoaderProfile {
  std::int64_t batches = 0;       ///< that were measured
  int workers = 0;                ///< worker processes of the loader
  double dataset = 0;             ///< reading samples, in a worker
  double collate = 0;             ///< making a batch of them, in a worker
  double wait = 0;                ///< the loop, for a batch
  double copy = 0;                ///< to the device, beside the loop, as the device's clock says
  double step = 0;                ///< the loop, between two batches
  double total = 0;               ///< the loop, all of it
  double batches_of_workers = 0;  ///< a second, at most: if the loop never kept them waiting
  double batches_of_loop = 0;     ///< a second, at most: if every batch lay ready
  double batches_of_copies = 0;   ///< a second, at most; 0: nothing is copied

  /// "workers", "loop" or "copies": what would have to become faster.
  [[nodiscard]] std::string bottleneck() const;
  /// A table for people.
  [[nodiscard]] std::string to_string() const;
};

/// What a profile writes besides.
struct ProfileOptions {
  /// A file for a CpuProfile of the batches, for Perfetto: what the loop waits for, and each operation in its steps.
  /// Empty: none.
  std::string trace;
};

/// Rates with several numbers of workers.
struct WorkerSuggestion {
  /// The rate with one number of workers.
  struct Measured {
    int workers = 0;                ///< worker processes
    double batches_per_second = 0;  ///< 0: nothing was measured
  };
  std::vector<Measured> measured;  ///< by number of workers, from 0 on
  int recommended = 0;             ///< the fewest that come within a tenth of the best

  /// A table for people.
  [[nodiscard]] std::string to_string() const;
};

namespace detail {
/// Fills in what follows from the measured times.
void conclude(LoaderProfile& profile);
void conclude(WorkerSuggestion& suggestion);
}  // namespace detail

}  // namespace shoal
