// The learning rate as a function of how far the training is.
#pragma once

#include <shoal/runtime/option_text.h>

#include <cstdint>

/// How the rate falls.
enum class Decay : std::uint8_t { constant, linear, cosine, step };

/// A schedule without a state: whoever knows the step knows the rate, so nothing of it has to be in a checkpoint.
struct LearningRate {
  Decay decay = Decay::linear;
  double warmup = 0;
  double factor = 0.1;
  int drops = 3;

  static constexpr shoal::OptionText kTexts[] = {
      {"decay", "how the learning rate falls: not at all, to zero in a line or in half a wave, or in drops"},
      {"warmup", "share of all steps in which it rises from zero to its full height", {.least = 0, .most = 1}},
      {"factor", "with decay step: times it each drop", {.most = 1, .above = 0}},
      {"drops", "with decay step: how often, evenly spread", {.least = 1}},
  };

  /// What the full rate is multiplied by in step `done`, of `total`.
  double at(std::int64_t done, std::int64_t total) const;
};
