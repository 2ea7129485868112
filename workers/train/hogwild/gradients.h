// The gradients of one process's step: found, made fit, clipped.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/hogwild/hogwild_state.h>
#include <shoal/internal/workers/train/hogwild/sparse_rows.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace shoal::hogwild {

/// A parameter's gradient.
struct Gradient {
  std::size_t parameter;  // its index
  at::Tensor flat;        // dense: its elements, in the order in which the parameter's lie; undefined if sparse
  std::optional<SparseRows> rows;  // if it is sparse

  bool is_sparse() const { return rows.has_value(); }
};

/// The gradients that the parameters have: copies only of those that do not lie as the parameter does, and of rows
/// that come several times or lie in a parameter's memory. Clips them where the options ask for it, dense ones in place,
/// as torch.nn.utils does. Throws std::invalid_argument for one that does not fit.
std::vector<Gradient> take_gradients(Optimizer::State& state);

}  // namespace shoal::hogwild
