// What one rank does.
#pragma once

#include "train_fashion_mnist/job.h"
#include "train_fashion_mnist/optimizer.h"

/// What a profile runs before it measures, see DataLoader::profile.
std::int64_t warm_up_batches(const Settings& settings);

/// Trains, in each mode. A function for shoal::start_processes.
/// `optimizer`: everybody's, in mode hogwild.
Metrics train(int rank, const Job& job, const SharedOptimizer& optimizer);
