// What is counted, and rank 0's lines of it.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>

#include "train_language_model/settings.h"
#include "train_language_model/text.h"
#include "training/json_log.h"

/// From the training's beginning on; saved in checkpoints, so that one that goes on reports what one that was never disturbed
/// does.
struct Progress {
  std::int64_t tokens = 0;  // of all ranks
  double seconds = 0;       // of steps, without evaluations
  double recent_loss = 0;   // since the last line: sum over this rank's steps
  std::int64_t recent_steps = 0;
  double recent_seconds = 0;
  std::int64_t recent_tokens = 0;

  /// One step.
  void add(double loss, std::int64_t step_tokens, double step_seconds);
};

/// On the terminal and in the log; docs/training-programs.md says what is in it. Other ranks than rank 0 say nothing.
class Report {
 public:
  Report(const Settings& settings, bool speaks);

  void begin(std::int64_t step, const torch::nn::Module& network, int ranks, const Text& text,
             const Settings& settings);
  /// Begins to count anew.
  void step(std::int64_t step, Progress& progress, double rate);
  void evaluation(std::int64_t step, const Progress& progress, double loss);

 private:
  bool speaks_;
  JsonLog log_;
};
