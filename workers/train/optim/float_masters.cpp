#include <shoal/workers/train/float_masters.h>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/modules/each_once.h>
#include <shoal/internal/workers/train/optim/original_of.h>

#include <cstddef>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace shoal {

/// On a rank without a batch the copies rest: its optimizer does, too. (One that is spread over the ranks looks after
/// the copies itself.)
class FloatMasters::InJoin final : public Joinable {
 public:
  InJoin(CopyList copies, c10::intrusive_ptr<c10d::ProcessGroup> process_group)
      : copies_(std::move(copies)), process_group_(std::move(process_group)) {}
  c10::intrusive_ptr<c10d::ProcessGroup> join_group() const override { return process_group_; }
  void set_join(Join* join) override {
    if (join && join_)
      throw std::invalid_argument("Join of FloatMasters that are in another Join: finish() that one first");
    join_ = join;
    was_without_batch_ = false;
  }
  bool has_turn() const override { return false; }
  void shadow(const JoinStep& /*step*/) override { was_without_batch_ = true; }
  void end_join(int root) override { equalize_copies(process_group_, copies_, root, was_without_batch_); }

 private:
  CopyList copies_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  Join* join_ = nullptr;
  bool was_without_batch_ = false;
};

FloatMasters::FloatMasters(const std::vector<at::Tensor>& parameters) : parameters_(each_once(parameters)) {
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.scalar_type() == at::kComplexHalf)
      throw std::invalid_argument(fmt::format(
          "FloatMasters: parameter {} is of {}, of which copies in float are not made: cast it to ComplexFloat",
          masters_.size(), c10::toString(parameter.scalar_type())));
    const bool half = parameter.scalar_type() == at::kBFloat16 || parameter.scalar_type() == at::kHalf;
    masters_.push_back(half ? parameter.detach().to(at::kFloat).set_requires_grad(parameter.requires_grad())
                            : parameter);
    if (half) remember_original(masters_.back(), parameter);
  }
}

void FloatMasters::take_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!masters_[i].is_same(parameters_[i])) take_gradient(masters_[i], parameters_[i]);
}

void FloatMasters::give_parameters() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!masters_[i].is_same(parameters_[i])) give_value(masters_[i], parameters_[i]);
}

void FloatMasters::take_parameters() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!masters_[i].is_same(parameters_[i])) masters_[i].detach().copy_(parameters_[i].detach());
}

Joinable& FloatMasters::joinable(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
  for (const auto& one : in_joins_)
    if (one->join_group() == process_group) return *one;
  CopyList copies;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!masters_[i].is_same(parameters_[i])) copies.emplace_back(masters_[i], parameters_[i]);
  return *in_joins_.emplace_back(std::make_shared<InJoin>(std::move(copies), process_group));
}

}  // namespace shoal
