#include <shoal/workers/data/collate.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <fmt/ranges.h>

namespace shoal::detail {

at::Tensor stack(std::span<const at::Tensor> tensors, const std::string& where) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) {
      throw std::invalid_argument(
          fmt::format("collate: sample {} of the batch has an undefined tensor{}{}; a sample needs all its tensors, "
                      "if an empty one, at::empty({{0}})",
                      i, where.empty() ? "" : " in sample", where));
    }
    if (tensors[i].sizes() != tensors[0].sizes()) {
      throw std::invalid_argument(fmt::format(
          "collate: sample{}: shape {} in sample 0 of the batch, {} in sample {}; to stack them they have to "
          "be equal, else give the DataLoader a collate function",
          where, tensors[0].sizes().vec(), tensors[i].sizes().vec(), i));
    }
  }
  return at::stack(at::TensorList(tensors.data(), tensors.size()));
}

void report_sizes(const std::string& where, std::size_t expected, std::size_t position, std::size_t size) {
  throw std::invalid_argument(fmt::format(
      "collate: sample{}: {} elements in sample 0 of the batch, {} in sample {}; they have to be equal, else "
      "give the DataLoader a collate function",
      where, expected, size, position));
}

void report_missing(const std::string& where, bool first_has_value, std::size_t position) {
  throw std::invalid_argument(
      fmt::format("collate: sample{}: {} value in sample 0 of the batch, {} in sample {}; all samples of a batch need "
                  "one, or none: "
                  "fill in a value for those without, or give the DataLoader a collate function",
                  where, first_has_value ? "a" : "no", first_has_value ? "none" : "one", position));
}

at::Tensor empty_vector(std::size_t size, at::ScalarType type) {
  return at::empty({std::int64_t(size)}, at::TensorOptions(type));
}

}  // namespace shoal::detail
