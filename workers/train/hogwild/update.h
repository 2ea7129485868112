// Gradients into parameters and state that other processes change at the same time.
#pragma once

#include <shoal/internal/workers/train/hogwild/gradients.h>
#include <shoal/internal/workers/train/hogwild/hogwild_state.h>

#include <vector>

namespace shoal::hogwild {

/// Counts the step of each parameter that has a gradient, and updates these parameters and their state.
void update(Optimizer::State& state, const std::vector<Gradient>& gradients);

}  // namespace shoal::hogwild
