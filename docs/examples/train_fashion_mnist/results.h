// What came out of the runs.
#pragma once

#include <string>
#include <vector>

#include "train_fashion_mnist/job.h"

/// What the table shows.
struct RunResult {
  std::string mode;
  int nprocs;                 // that compute: ranks, or workers of data_parallel
  int threads;                // that each computes with
  double seconds;             // from the start of the processes to their results
  double samples_per_second;  // while training, all ranks together
  double loss;                // of the last epoch
  double test_accuracy;
  std::string profile;  // of rank 0, with --profile
};

RunResult make_result(Mode mode, const Settings& settings, const std::vector<Metrics>& ranks, double seconds);

/// A table for people, and one last line of JSON with the same. Of profiles, these.
void print_results(const std::vector<RunResult>& results);
