#include <shoal/internal/workers/train/ddp/hooks/rests.h>

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace shoal {

bool are_same(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  return std::ranges::equal(some, others, [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
}

bool have_one_in_common(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  return std::ranges::any_of(some, [&](const at::Tensor& a) {
    return std::ranges::any_of(others, [&](const at::Tensor& b) { return a.is_same(b); });
  });
}

at::Tensor& Rests::of(const GradBucket& bucket) {
  if (bucket.index() >= buckets_.size()) buckets_.resize(bucket.index() + 1);
  std::vector<at::Tensor> parameters = bucket.parameters();
  if (!are_same(buckets_[bucket.index()].parameters, parameters)) {
    forget_buckets_of(buckets_, parameters);
    buckets_[bucket.index()] = made_for(bucket, std::move(parameters));
  }
  return buckets_[bucket.index()].values;
}

Rests::Bucket Rests::made_for(const GradBucket& bucket, std::vector<at::Tensor> parameters) {
  Bucket made{std::move(parameters), at::zeros_like(bucket.buffer())};
  const std::vector<at::Tensor> gradients = bucket.gradients();
  for (std::size_t i = 0; i < made.parameters.size(); ++i) {
    const at::Tensor& parameter = made.parameters[i];
    const std::int64_t offset = gradients[i].storage_offset() - bucket.buffer().storage_offset();
    const at::Tensor values = made.values.narrow(0, offset, parameter.numel());
    Part& part = parts_[parameter.unsafeGetTensorImpl()];
    if (part.values.defined()) values.copy_(part.values);
    part = {parameter, values};
  }
  return made;
}

std::vector<at::Tensor> Rests::save(const std::vector<at::Tensor>& parameters) const {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : parameters) {
    const auto part = parts_.find(parameter.unsafeGetTensorImpl());
    result.push_back(part == parts_.end() ? at::Tensor()
                                          : part->second.values.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
  }
  return result;
}

void Rests::load(const std::vector<at::Tensor>& left_out, const std::vector<at::Tensor>& parameters) {
  buckets_.clear();
  parts_.clear();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (left_out[i].defined()) parts_[parameters[i].unsafeGetTensorImpl()] = {parameters[i], left_out[i].clone()};
}

}  // namespace shoal
