// What each rank does.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "train_language_model/settings.h"
#include "train_language_model/text.h"
#include "train_language_model/transformer.h"

/// How a training ended.
struct Outcome {
  Transformer network = nullptr;
  std::int64_t step = 0;         // the last one that was done
  bool stopped = false;          // because SIGTERM came; the checkpoint is written
  double test_loss = 0;          // in nats a character; of a training that was not stopped
  double tokens_per_second = 0;  // of all ranks, while training
};

/// Trains with DistributedDataParallel, from the last checkpoint on if there is one. Collective. Throws
/// std::invalid_argument if the ranks do not divide the batch; shoal::CheckpointError.
Outcome train(const Settings& settings, const Text& text, const c10::intrusive_ptr<c10d::ProcessGroup>& group);
