// The data that are trained on.
#pragma once

#include <shoal/workers/data/mnist.h>

#include <cstdint>
#include <filesystem>
#include <optional>

#include "train_fashion_mnist/settings.h"

/// Tensors are in shared memory: every rank and every loader worker of all runs maps this memory.
struct Data {
  std::int64_t train_size = 0;
  std::optional<shoal::MnistDataset> train = {};  // --data-format idx
  std::filesystem::path beton = {};               // --data-format beton: what each process maps itself
  shoal::MnistDataset test;
};

/// Throws shoal::DatasetError.
Data load_data(const Settings& settings);
