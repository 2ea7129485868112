#include <shoal/internal/workers/datasets/parts/join_batches.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <sstream>
#include <stdexcept>
#include <string>

namespace shoal::detail {
namespace {

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << tensor.sizes();
  return text.str();
}

}  // namespace

at::Tensor join_rows(std::span<const at::Tensor* const> parts, std::span<const Positions> positions,
                     std::int64_t rows) {
  const at::Tensor& first = *parts.front();
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const at::Tensor& part = *parts[p];
    if (part.dim() == 0 || part.size(0) != std::int64_t(positions[p].size()))
      throw std::invalid_argument(fmt::format("ConcatDataset: get_batch of {} samples has returned a tensor {}",
                                              std::int64_t(positions[p].size()), describe(part)));
    if (part.scalar_type() != first.scalar_type() || part.sizes().slice(1) != first.sizes().slice(1))
      throw std::invalid_argument(
          fmt::format("ConcatDataset: the samples of its data sets do not fit into one batch: {} and {}",
                      describe(first), describe(part)));
  }
  std::vector<std::int64_t> sizes = first.sizes().vec();
  sizes[0] = rows;
  at::Tensor joined = at::empty(sizes, first.options());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    // from_blob wants a mutable pointer; index_copy_ only reads its index.
    auto* start = const_cast<std::int64_t*>(positions[p].data());
    joined.index_copy_(0, at::from_blob(start, {std::int64_t(positions[p].size())}, at::TensorOptions(at::kLong)),
                       *parts[p]);
  }
  return joined;
}

}  // namespace shoal::detail
