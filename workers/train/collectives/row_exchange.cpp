#include <shoal/internal/workers/train/collectives/row_exchange.h>

#include <fmt/format.h>

#include <stdexcept>

namespace shoal {
namespace {

/// Bytes of each rank's part of a tensor that is cut along its first dimension.
std::vector<std::size_t> part_bytes(const at::Tensor& tensor, std::span<const std::int64_t> splits, int world,
                                    const char* name) {
  const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (tensor.dim() == 0)
    throw std::invalid_argument(fmt::format("all_to_all_single: the {} has no dimension to be cut along", name));
  if (splits.empty() && rows % world != 0)
    throw std::invalid_argument(fmt::format(
        "all_to_all_single: {} rows of the {} are not {} equal parts: give {}_splits", rows, name, world, name));
  if (!splits.empty() && int(splits.size()) != world)
    throw std::invalid_argument(
        fmt::format("all_to_all_single: {} {}_splits in a group of {} ranks", splits.size(), name, world));
  std::int64_t left = rows;
  std::vector<std::size_t> parts;
  const std::size_t row_bytes = rows == 0 ? 0 : tensor.nbytes() / std::size_t(rows);
  for (int rank = 0; rank < world; ++rank) {
    const std::int64_t part = splits.empty() ? rows / world : splits[std::size_t(rank)];
    if (part < 0 || part > left)
      throw std::invalid_argument(
          fmt::format("all_to_all_single: {}_splits[{}] is {}, and {} of the {}'s {} rows are left", name, rank, part,
                      left, name, rows));
    left -= part;
    parts.push_back(std::size_t(part) * row_bytes);
  }
  if (left != 0)
    throw std::invalid_argument(
        fmt::format("all_to_all_single: {}_splits leave {} of the {}'s {} rows over", name, left, name, rows));
  return parts;
}

}  // namespace

RowExchange::RowExchange(const at::Tensor& output, const at::Tensor& input, std::span<const std::int64_t> output_splits,
                         std::span<const std::int64_t> input_splits, int world)
    : source(input, "all_to_all_single"), target(output, "all_to_all_single") {
  if (output.scalar_type() != input.scalar_type())
    throw std::invalid_argument(fmt::format("all_to_all_single: an output of {} for an input of {}",
                                            c10::toString(output.scalar_type()), c10::toString(input.scalar_type())));
  input_bytes = part_bytes(input, input_splits, world, "input");
  output_bytes = part_bytes(output, output_splits, world, "output");
}

}  // namespace shoal
