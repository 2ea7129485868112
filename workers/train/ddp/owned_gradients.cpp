#include <shoal/internal/workers/train/ddp/owned_gradients.h>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_complex.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

namespace shoal {
namespace {

/// Throws on all ranks if a rank has given other owners than rank 0.
void check_same_owners(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const std::vector<int>& owners) {
  at::Tensor own = at::empty({std::int64_t(owners.size())}, at::kInt);
  std::ranges::copy(owners, own.data_ptr<int>());
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < process_group->getSize(); ++rank) all[0].push_back(at::empty_like(own));
  std::vector<at::Tensor> input{own};
  process_group->allgather(all, input)->wait();
  for (std::size_t rank = 1; rank < all[0].size(); ++rank)
    if (!all[0][rank].equal(all[0][0]))
      throw std::invalid_argument(fmt::format(
          "shard_gradients: rank {} has given other owners than rank 0: all ranks give the same, as those of "
          "a ZeroRedundancyOptimizer over the same parameters in the same order",
          rank));
}

bool is_view_of(const at::Tensor& gradient, const c10::StorageImpl& storage) {
  return gradient.defined() && gradient.has_storage() && gradient.storage().unsafeGetStorageImpl() == &storage;
}

/// Whether a sum's division is exact, and cannot be needed before the sum: then the owner alone divides.
bool divides_exactly(const at::Tensor& sum, int divisor) {
  return std::has_single_bit(unsigned(divisor)) && sum.scalar_type() != at::kHalf;
}

}  // namespace

std::vector<at::Tensor> gradients_in(const at::Tensor& buffer, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> views;
  views.reserve(parameters.size());
  std::int64_t at = 0;
  for (const at::Tensor& parameter : parameters) {
    // The Reducer has complex numbers in buckets of real ones.
    const bool pairs = parameter.is_complex() && !buffer.is_complex();
    const std::int64_t elements = parameter.numel() * (pairs ? 2 : 1);
    at::Tensor flat = buffer.narrow(0, at, elements);
    if (pairs) flat = at::view_as_complex(flat.view({parameter.numel(), 2}));
    // As the Reducer lays them out.
    views.push_back(parameter.is_non_overlapping_and_dense()
                        ? flat.as_strided(parameter.sizes(), parameter.strides(), flat.storage_offset())
                        : flat.view(parameter.sizes()));
    at += elements;
  }
  return views;
}

OwnedGradients::OwnedGradients(const NamedTensorList& parameters, const std::vector<bool>& expect_sparse,
                               const GradientOwners& owners, c10::intrusive_ptr<c10d::ProcessGroup> process_group)
    : process_group_(std::move(process_group)) {
  std::unordered_map<const c10::TensorImpl*, int> owner_of;
  for (const auto& [parameter, owner] : owners) owner_of[parameter.unsafeGetTensorImpl()] = owner;
  const int ranks = process_group_->getSize(), own = process_group_->getRank();
  std::vector<int> all;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    const auto found = owner_of.find(parameter.unsafeGetTensorImpl());
    if (found == owner_of.end())
      throw std::invalid_argument(
          fmt::format("shard_gradients: {} has no owner: give those of an optimizer of all parameters", name));
    if (found->second < 0 || found->second >= ranks)
      throw std::invalid_argument(
          fmt::format("shard_gradients: rank {} as the owner of {}: there are {} ranks", found->second, name, ranks));
    if (!parameter.device().is_cpu())
      throw std::invalid_argument(fmt::format("shard_gradients: {} is on {}: only gradients of CPU tensors are sharded",
                                              name, parameter.device().str()));
    all.push_back(found->second);
    index_of_[parameter.unsafeGetTensorImpl()] = i;
    parameters_.push_back({.parameter = parameter, .sparse = expect_sparse[i], .mine = found->second == own});
  }
  check_same_owners(process_group_, all);
}

void OwnedGradients::adopt(const std::vector<c10d::GradBucket>& buckets) {
  const at::NoGradGuard no_grad;
  const std::vector<c10::Storage> before = std::exchange(buckets_, {});
  reduced_buckets_ = 0;
  for (const c10d::GradBucket& bucket : buckets) {
    const at::Tensor& buffer = bucket.getBuffer();
    if (!buffer.defined() || buffer.layout() != c10::kStrided) continue;
    c10::StorageImpl& storage = *buffer.storage().unsafeGetStorageImpl();
    for (const at::Tensor& parameter : bucket.getParameters()) {
      parameters_[index_of_.at(parameter.unsafeGetTensorImpl())].bucket = buckets_.size();
      // A gradient that was there has become a view of the bucket.
      at::Tensor& gradient = parameter.mutable_grad();
      if (is_view_of(gradient, storage)) gradient = gradient.clone();
    }
    buckets_.push_back(buffer.storage());
    memory_.empty(storage);
  }
  for (Owned& owned : parameters_) owned.gradient.reset();
  for (const c10::Storage& old : before) memory_.empty(*old.unsafeGetStorageImpl());
}

void OwnedGradients::drop_views() {
  for (Owned& owned : parameters_) {
    at::Tensor& gradient = owned.parameter.mutable_grad();
    if (!owned.sparse && is_view_of(gradient, storage_of(owned))) gradient.reset();
  }
}

void OwnedGradients::begin_pass(Writes writes) {
  reduced_buckets_ = 0;
  if (writes == Writes::to_used) return;
  for (const Owned& owned : parameters_)
    if (!owned.sparse && (writes == Writes::to_all || !owned.comes)) memory_.give(storage_of(owned));
}

void OwnedGradients::comes(std::size_t parameter, bool syncs, int divisor) {
  Owned& owned = parameters_[parameter];
  if (owned.sparse) return;
  // The others have nothing to add theirs to: by the division that follows, their sum is the mean that was here.
  if (std::exchange(owned.reduced, false) && owned.parameter.grad().defined()) {
    const at::NoGradGuard no_grad;
    owned.parameter.mutable_grad().mul_(divisor);
  }
  if (!syncs) return;
  owned.comes = true;
  memory_.give(storage_of(owned));
}

HookResult OwnedGradients::reduce(const GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  const at::Tensor& buffer = bucket.buffer();
  const int divisor = bucket.divisor();
  std::vector<at::Tensor> sum{buffer};
  if (buffer.layout() != c10::kStrided) {
    buffer.div_(divisor);
    return hook_result_after(process_group_->allreduce(sum), [buffer]() -> at::Tensor { return buffer; });
  }
  ++reduced_buckets_;
  const std::vector<at::Tensor> parameters = bucket.parameters();
  const std::vector<at::Tensor> slices = gradients_in(buffer, parameters);
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    // As in comes(): this pass has not used it, and the Reducer has put the mean of an earlier one here.
    const Owned& owned = parameters_[index_of_.at(parameters[k].unsafeGetTensorImpl())];
    if (owned.mine && owned.reduced && parameters[k].grad().defined()) slices[k].mul_(divisor);
  }
  const bool later = divides_exactly(buffer, divisor);
  if (!later) buffer.mul_(1.0 / divisor);
  return hook_result_after(
      process_group_->allreduce(sum), [self = shared_from_this(), buffer, parameters, divisor, later]() -> at::Tensor {
        const at::NoGradGuard still_none;
        const auto means = gradients_in(buffer, parameters);
        for (std::size_t k = 0; k < parameters.size(); ++k) {
          Owned& owned = self->parameters_[self->index_of_.at(parameters[k].unsafeGetTensorImpl())];
          if (owned.mine) owned.gradient = later ? means[k].mul(1.0 / divisor) : means[k].clone();
        }
        self->memory_.take(*buffer.storage().unsafeGetStorageImpl());
        return buffer;
      });
}

void OwnedGradients::end_pass() {
  if (reduced_buckets_ < buckets_.size()) return;  // a checkpointed segment's has ended, not the whole one
  reduced_buckets_ = 0;
  for (Owned& owned : parameters_) {
    if (owned.sparse) continue;
    at::Tensor& gradient = owned.parameter.mutable_grad();
    // One that no rank has used keeps what it has.
    if (is_view_of(gradient, storage_of(owned))) {
      owned.reduced = owned.mine;
      gradient = std::exchange(owned.gradient, {});
    }
    owned.gradient.reset();
  }
  memory_.trim();
}

at::Tensor OwnedGradients::take(const at::Tensor& parameter) {
  Owned& owned = parameters_[index_of_.at(parameter.unsafeGetTensorImpl())];
  owned.reduced = owned.mine;
  return std::exchange(owned.gradient, {});
}

}  // namespace shoal
