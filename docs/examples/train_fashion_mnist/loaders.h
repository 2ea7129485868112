// How the data come to a rank.
#pragma once

#include <shoal/workers/beton/beton_loader.h>
#include <shoal/workers/data/data_loader.h>

#include <memory>

#include "train_fashion_mnist/data.h"
#include "train_fashion_mnist/settings.h"

using Loader = shoal::DataLoader<shoal::MnistDataset>;

/// What a rank trains on: batches of {data: uint8 [n, 28, 28], target: int64 [n]}. For another format add a function like
/// this one, its line where train() makes the loader, and an example_of() of its batches.
std::unique_ptr<Loader> training_loader(const Data& data, const Settings& settings, Mode mode, int rank);

/// From the .beton file, by pipelines, in quasi-random order. A loader finds out its rank by itself.
std::unique_ptr<shoal::BetonLoader<>> beton_loader(const Data& data, const Settings& settings, Mode mode);

/// A batch of either.
inline const shoal::Example& example_of(const shoal::Example& batch) { return batch; }
shoal::Example example_of(const shoal::BetonSample& batch);

/// A rank's share of the test set, in order: each sample is one rank's.
std::unique_ptr<Loader> test_loader(const Data& data, int ranks, int rank);
