#include "training/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

double LearningRate::at(std::int64_t done, std::int64_t total) const {
  const double place = double(done) / double(std::max<std::int64_t>(1, total));
  // The first step is no step of rate 0.
  if (place < warmup) return double(done + 1) / (warmup * double(total) + 1);
  const double gone = std::clamp((place - warmup) / std::max(1 - warmup, 1e-9), 0.0, 1.0);
  switch (decay) {
    case Decay::constant:
      break;
    case Decay::linear:
      return 1 - gone;
    case Decay::cosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * gone));
    case Decay::step:
      return std::pow(factor, std::floor(gone * (drops + 1)));
  }
  return 1;
}
