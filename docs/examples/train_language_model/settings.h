// What the user asked for.
#pragma once

#include <shoal/runtime/option_text.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "training/autocast.h"
#include "training/learning_rate.h"

/// How large the network is.
struct Size {
  std::int64_t layers = 6;
  std::int64_t heads = 4;
  std::int64_t width = 128;
  std::int64_t context = 128;
  double dropout = 0.1;

  static constexpr shoal::OptionText kTexts[] = {
      {"layers", "of attention and what follows it", {.least = 1}},
      {"heads", "of each attention; they divide the width", {.least = 1}},
      {"width", "numbers for each character", {.least = 1}},
      {"context", "characters that are looked back at", {.least = 2}},
      {"dropout", "share of each layer's output that is left out while training", {.least = 0, .most = 0.9}},
  };
  /// Throws std::invalid_argument.
  void validate() const;
};

/// All options, as shoal::configure() reads them.
struct Settings {
  std::filesystem::path text = "/usr/share/common-licenses";
  std::int64_t steps = 600;
  std::int64_t batch_size = 32;
  int workers = 0;
  Size size;
  double lr = 1e-3;
  LearningRate schedule{.decay = Decay::cosine, .warmup = 0.05};
  double clip = 1.0;
  Amp amp = Amp::bf16;
  std::uint64_t seed = 0;
  std::filesystem::path checkpoint;  // empty: none
  std::int64_t checkpoint_every = 100;
  std::int64_t evaluate_every = 200;
  std::filesystem::path log;  // empty: none
  std::int64_t log_every = 20;
  std::filesystem::path plots;  // empty: none
  std::int64_t sample = 400;
  std::string prompt = "The ";
  double temperature = 0.7;

  static constexpr shoal::OptionText kTexts[] = {
      {"text",
       "a file, or a folder with files, which are read in the order of their names; its last tenth is the test"},
      {"steps", "to do in all; 0: none, but evaluate and write", {.least = 0}},
      {"batch_size", "sequences a step, of all ranks together", {.least = 1}},
      {"workers", "loader processes of each rank; 0: load in it", {.least = 0}},
      {"lr", "full learning rate of AdamW", {.above = 0}},
      {"clip", "largest norm of all gradients together", {.above = 0}},
      {"amp", "bf16: the forward pass in mixed precision"},
      {"seed", "of the network's start, the samples' order, dropout and the sample of text"},
      {"checkpoint", "folder: go on from the last checkpoint in it, and save there"},
      {"checkpoint_every", "steps from one to the next", {.least = 1}},
      {"evaluate_every", "steps from one evaluation to the next; there is one at the end, too", {.least = 1}},
      {"log", "file of JSON lines, appended to: losses, learning rates, tokens/s"},
      {"log_every", "steps from one line to the next, here and on the terminal", {.least = 1}},
      {"plots", "with log: folder for pictures of it, drawn at the end"},
      {"sample", "characters to write at the end", {.least = 0}},
      {"prompt", "what they go on from"},
      {"temperature", "of that: near 0 it is always the likeliest character", {.above = 0}},
  };
  /// Throws std::invalid_argument.
  void validate() const;
};
