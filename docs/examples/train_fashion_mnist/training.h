// What one rank does.
#pragma once

#include <shoal/ipc/barrier.h>
#include <shoal/ipc/queue.h>
#include <shoal/workers/data/mnist.h>
#include <shoal/workers/train/hogwild.h>
#include <shoal/workers/train/shm_group.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "train_fashion_mnist/checkpoint.h"
#include "train_fashion_mnist/settings.h"

/// Everything a rank needs; an argument like any other. Its tensors lie in shared memory: one copy for all.
struct Job {
  std::string mode;
  int nprocs;
  Settings settings;
  shoal::MnistDataset train, test;
  Checkpoint start;                      // the state to go on from
  shoal::SharedOptimizerState momentum;  // hogwild: everybody's
  shoal::ShmGroup group;                 // ddp: who reduces gradients with whom
  shoal::Barrier trained;                // passed when all ranks have trained
  shoal::Queue<Checkpoint> checkpoints;  // rank 0 to the parent
  at::Tensor progress;                   // int64 [nprocs]: samples that each rank has trained on
};

/// What comes back from each rank.
struct Metrics {
  double loss;           // mean over its samples of the last epoch
  double seconds;        // of its training
  std::int64_t samples;  // it trained on
  at::Tensor confusion;  // int64 [10, 10], of its share of the test set: rows are classes, columns answers
  std::string profile;   // with --profile, and then nothing but that
};

/// What a profile runs before it measures, see DataLoader::profile.
inline std::int64_t warm_up_batches(const Settings& settings) {
  return 2 * std::max<std::int64_t>(1, settings.workers);
}

Metrics train(int rank, Job job);
