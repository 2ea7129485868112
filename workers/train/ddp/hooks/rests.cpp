#include <shoal/internal/workers/train/ddp/hooks/rests.h>

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

namespace shoal {

bool are_same(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  return std::ranges::equal(some, others, [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
}

at::Tensor& Rests::of(const GradBucket& bucket) {
  if (std::exchange(step_, bucket.step()) != bucket.step()) displaced_.clear();
  if (bucket.index() >= rests_.size()) rests_.resize(bucket.index() + 1);
  std::vector<at::Tensor> parameters = bucket.parameters();
  Rest& there = rests_[bucket.index()];
  if (!there.values.defined() || !are_same(there.parameters, parameters)) {
    Rest anew = made_for(bucket, std::move(parameters));
    if (there.values.defined()) displaced_.push_back(std::move(there));
    there = std::move(anew);
  }
  if (bucket.is_last()) rests_.resize(bucket.index() + 1);  // of buckets that there are no more
  return there.values;
}

/// The last of these that has the parameter; undefined if none has.
at::Tensor Rests::part_of(const std::vector<Rest>& all, const at::Tensor& parameter) {
  at::Tensor part;
  for (const Rest& each : all)
    for (std::size_t i = 0; each.values.defined() && i < each.parameters.size(); ++i)
      if (each.parameters[i].is_same(parameter)) part = each.values.narrow(0, each.offsets[i], parameter.numel());
  return part;
}

Rests::Rest Rests::made_for(const GradBucket& bucket, std::vector<at::Tensor> parameters) {
  Rest made{std::move(parameters), {}, at::zeros_like(bucket.buffer())};
  for (const at::Tensor& gradient : bucket.gradients())
    made.offsets.push_back(gradient.storage_offset() - bucket.buffer().storage_offset());
  for (std::size_t i = 0; i < made.parameters.size(); ++i) {
    const at::Tensor& parameter = made.parameters[i];
    // The newest first: of buckets that come later in this step, as they lay before.
    at::Tensor part = part_of(rests_, parameter);
    if (!part.defined()) part = part_of(displaced_, parameter);
    if (!part.defined()) part = part_of(loaded_, parameter);
    if (part.defined()) made.values.narrow(0, made.offsets[i], parameter.numel()).copy_(part);
  }
  std::erase_if(loaded_, [&](const Rest& rest) {
    return std::ranges::any_of(made.parameters, [&](const at::Tensor& one) { return one.is_same(rest.parameters[0]); });
  });
  return made;
}

std::vector<at::Tensor> Rests::save(const std::vector<at::Tensor>& parameters) const {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor part = part_of(rests_, parameter);
    if (!part.defined()) part = part_of(displaced_, parameter);
    if (!part.defined()) part = part_of(loaded_, parameter);
    result.push_back(part.defined() ? part.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true) : part);
  }
  return result;
}

void Rests::load(const std::vector<at::Tensor>& left_out, const std::vector<at::Tensor>& parameters) {
  rests_.clear();
  displaced_.clear();
  loaded_.clear();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (left_out[i].defined()) loaded_.push_back({{parameters[i]}, {0}, left_out[i].clone()});
}

}  // namespace shoal
