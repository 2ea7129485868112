// A state of training on disk.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "train_fashion_mnist/network.h"

/// All that a run needs to go on. Crosses from rank 0 to the parent, which writes it.
struct Checkpoint {
  std::int64_t epoch = 0;  // epochs done
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> momentum;
};

/// The file is no checkpoint, or one of another model.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Writes beside the file and renames, so that there is always the old one or the new one, whole. Nothing is
/// left beside it if writing fails.
void save_checkpoint(const std::string& file, const Checkpoint& checkpoint, const Network& network);

/// Nothing if there is no such file. Throws CheckpointError, which says what does not fit.
std::optional<Checkpoint> load_checkpoint(const std::string& file, const Network& network);
