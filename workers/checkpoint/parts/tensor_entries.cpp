#include <shoal/internal/workers/checkpoint/parts/tensor_entries.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/train/optim/partition.h>

#include <cstddef>
#include <cstdint>

namespace shoal::detail {

std::vector<bool> written_here(const ShardContents& to, const std::vector<at::Tensor>& tensors, OnRanks on_ranks) {
  if (on_ranks == OnRanks::own) return std::vector<bool>(tensors.size(), true);
  std::vector<std::int64_t> sizes;
  sizes.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) sizes.push_back(std::int64_t(tensor.nbytes()));
  std::vector<bool> result;
  result.reserve(tensors.size());
  for (const int owner : partition_by_size(sizes, to.ranks())) result.push_back(owner == to.rank());
  return result;
}

void check_tensor(const CheckpointStep::Found& found, at::IntArrayRef sizes, at::ScalarType type) {
  const CheckpointEntry& entry = *found.entry;
  if (entry.kind != CheckpointEntryKind::kTensor) found.fail("it is no tensor there");
  const std::string own = checkpoint_type_name(type);
  if (at::IntArrayRef(entry.shape) != sizes || entry.type != own)
    found.fail(fmt::format("it is [{}] {} there, and [{}] {} in this program", fmt::join(entry.shape, ", "), entry.type,
                           fmt::join(sizes, ", "), own.empty() ? c10::toString(type) : own));
}

void read_tensor(const CheckpointStep::Found& found, const at::Tensor& into) {
  const at::NoGradGuard no_grad;
  const at::Tensor tensor = into.detach();
  if (tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    found.read({static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
    return;
  }
  const at::Tensor read = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
  found.read({static_cast<std::byte*>(read.mutable_data_ptr()), read.nbytes()});
  tensor.copy_(read);
}

}  // namespace shoal::detail
