// What a rank counts, and what it reports of it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "train_fashion_mnist/evaluation.h"
#include "train_fashion_mnist/job.h"
#include "training/json_log.h"

/// Where a rank is in its training. Each rank's own; saved in checkpoints, so that one that goes on reports what one that
/// was never disturbed does.
struct Progress {
  std::int64_t epoch = 0, step = 0;  // under way; steps of this rank in that epoch
  std::int64_t samples = 0;          // this rank's, since the beginning
  double epoch_loss = 0;             // sum over this rank's samples of the epoch
  std::int64_t epoch_samples = 0;
  double recent_loss = 0;  // sum over the steps since the last line of the log
  std::int64_t recent_steps = 0;
  double last_loss = 0;  // mean over all ranks' samples of the last epoch that was finished
  double seconds = 0;    // of training, in earlier runs, too; without evaluations

  void add(double loss, std::int64_t batch);
  void begin_epoch(std::int64_t next);
};

/// Rank 0's lines; docs/training-programs.md says what is in them. Other ranks write none.
class Report {
 public:
  Report(const Job& job, int rank);

  void begin(std::int64_t step, std::int64_t steps_of_epoch, std::int64_t parameters);
  /// Writes a line if it is time for one, and begins to count anew.
  void step(Progress& progress, std::int64_t step, std::int64_t samples, double rate);
  void evaluation(const Progress& progress, std::int64_t step, std::int64_t samples, const Evaluation& found);

 private:
  nlohmann::ordered_json line(const char* event) const;

  const Settings& settings_;
  std::string mode_;
  int ranks_;
  JsonLog log_;
};
