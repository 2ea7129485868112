// What a rank is given, and what comes back.
#pragma once

#include <shoal/ipc/event.h>
#include <shoal/tensors/module_state.h>
#include <shoal/workers/train/shm_group.h>

#include <cstdint>
#include <string>

#include "train_fashion_mnist/data.h"
#include "train_fashion_mnist/settings.h"

/// Everything a rank needs; an argument like any other. Its tensors lie in shared memory: one copy for all.
struct Job {
  Mode mode;
  int ranks;
  Settings settings;
  Data data;
  shoal::ModuleState start;  // of the network; in mode hogwild everybody's network
  shoal::ShmGroup group;     // who computes together
  shoal::Event stop;         // hogwild: set by whoever is asked to stop
  at::Tensor progress;       // int64 [ranks + 1]: samples of each rank in this run; all before it, -1: not known yet
};

/// What comes back from each rank.
struct Metrics {
  double seconds;        // of its training in this run
  std::int64_t samples;  // it trained on in this run
  double loss;           // of the last epoch, over all samples of all ranks
  at::Tensor confusion;  // int64 [10, 10], of the whole test set: rows are classes, columns answers
  std::int64_t stopped;  // the step after which all ranks stopped because they were asked to; -1: they did not
  std::string profile;   // with --profile, and then nothing but that
};
