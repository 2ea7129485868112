// One run: the ranks of a mode, seen from the parent.
#pragma once

#include <shoal/workers/data/mnist.h>

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "train_fashion_mnist/settings.h"

/// What the table shows.
struct RunResult {
  std::string mode;
  int nprocs;
  int threads;                // that each computes with
  double seconds;             // from the start of the processes to their results
  double samples_per_second;  // while training, all ranks together
  double loss;
  double test_accuracy;
  std::string profile;  // of rank 0, with --profile
};

/// The user pressed Ctrl-C.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

/// From now on Ctrl-C is noticed by run(), which then throws Interrupted with everything ended.
void catch_interrupts();

/// Throws std::invalid_argument or CheckpointError for what could only fail later, perhaps after a run that succeeds.
void check_runs(const Settings& settings);

/// Throws what the ranks throw, CheckpointError and Interrupted.
RunResult run(const std::string& mode, const Settings& settings, const shoal::MnistDataset& train_set,
              const shoal::MnistDataset& test_set);

/// A table for people, and one last line of JSON with the same. Of profiles, these.
void print_results(const std::vector<RunResult>& results);
