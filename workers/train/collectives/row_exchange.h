// An all-to-all of a tensor's rows, in bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/collectives/tensor_bytes.h>
#include <shoal/internal/workers/train/group/group_layout.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

namespace shoal {

/// What one rank gives and expects. Throws std::invalid_argument if it makes no sense by itself, whatever other ranks give.
struct RowExchange {
  RowExchange(const at::Tensor& output, const at::Tensor& input, std::span<const std::int64_t> output_splits,
              std::span<const std::int64_t> input_splits, int world);

  TensorBytes source, target;
  std::vector<std::size_t> input_bytes, output_bytes;  ///< by rank
};

/// all_to_all_single() over a Communicator or a RankGroup.
template <class Ranks>
void exchange_rows(Ranks& ranks, const at::Tensor& output, const at::Tensor& input,
                   std::span<const std::int64_t> output_splits, std::span<const std::int64_t> input_splits) {
  std::optional<RowExchange> rows;
  try {
    rows.emplace(output, input, output_splits, input_splits, ranks.world_size());
  } catch (const std::invalid_argument& error) {
    ranks.refuse(Collective::all_to_all, error.what());
  }
  ranks.all_to_all(rows->source.region(), rows->input_bytes, rows->target.data(), rows->output_bytes,
                   input.scalar_type());
  rows->target.write_back();
}

}  // namespace shoal
