// The training set as a .beton file.
#pragma once

#include <filesystem>

#include "train_fashion_mnist/settings.h"

/// The file of --data's training set in --cache, with fields data and target. Written at first use, and said so; a data
/// set that has changed since is another file. Throws shoal::DatasetError.
std::filesystem::path beton_of(const Settings& settings);
