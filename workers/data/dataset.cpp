#include <shoal/workers/data/dataset.h>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace shoal {

void check_dataset_index(std::int64_t index, std::int64_t size) {
  if (index < 0 || index >= size) {
    throw std::out_of_range(fmt::format("data set: index {} is out of range of its {} samples", index, size));
  }
}

at::Tensor select_rows(const at::Tensor& tensor, std::span<const std::int64_t> indices) {
  for (const std::int64_t index : indices) {
    check_dataset_index(index, tensor.size(0));
  }
  // from_blob wants a mutable pointer; index_select only reads its index.
  const at::Tensor index = at::from_blob(const_cast<std::int64_t*>(indices.data()), {std::int64_t(indices.size())},
                                         at::TensorOptions(at::kLong));
  return at::index_select(tensor, 0, index);
}

void check_equal_rows(std::span<const at::Tensor> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || tensors[i].dim() == 0) {
      throw std::invalid_argument(
          fmt::format("tensor_dataset: tensor {} has no rows; it is undefined or has no dimension", i));
    }
    if (tensors[i].size(0) != tensors[0].size(0)) {
      throw std::invalid_argument(fmt::format(
          "tensor_dataset: tensor {} of shape {} has {} rows, tensor 0 of shape {} has {}; they have to be equal", i,
          tensors[i].sizes().vec(), tensors[i].size(0), tensors[0].sizes().vec(), tensors[0].size(0)));
    }
  }
}

}  // namespace shoal
