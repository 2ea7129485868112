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

Rests::Rest Rests::made_for(const GradBucket& bucket, std::vector<at::Tensor> parameters) const {
  Rest made{std::move(parameters), {}, at::zeros_like(bucket.buffer())};
  for (const at::Tensor& gradient : bucket.gradients())
    made.offsets.push_back(gradient.storage_offset() - bucket.buffer().storage_offset());
  const auto take_from = [&](const std::vector<Rest>& all) {
    for (const Rest& other : all)
      for (std::size_t from = 0; other.values.defined() && from < other.parameters.size(); ++from)
        for (std::size_t to = 0; to < made.parameters.size(); ++to)
          if (made.parameters[to].is_same(other.parameters[from])) {
            const std::int64_t elements = made.parameters[to].numel();
            made.values.narrow(0, made.offsets[to], elements)
                .copy_(other.values.narrow(0, other.offsets[from], elements));
          }
  };
  // The newer ones last: of buckets that come later in this step, as they lay before.
  take_from(displaced_);
  take_from(rests_);
  return made;
}

}  // namespace shoal
