#include <shoal/internal/workers/checkpoint/parts/hook_part.h>

#include <shoal/internal/workers/checkpoint/folder/checkpoint_step.h>
#include <shoal/internal/workers/checkpoint/parts/value_part.h>
#include <shoal/tensors/codec.h>

#include <functional>
#include <utility>

namespace shoal::detail {
namespace {

class HookPart final : public CheckpointPart {
 public:
  HookPart(const std::string& name, const StatefulCommHook& hook, const std::vector<at::Tensor>& parameters)
      : CheckpointPart(name),
        hook_(hook),
        parameters_(parameters),
        value_(make_value_part<CommHookState>(
            name, [hook, parameters] { return hook.state_dict(parameters); },
            [read = read_](CommHookState state) { *read = std::move(state); },
            [parameters](const CommHookState& state) { check_state_dict(state, parameters); })) {}

  void write(ShardContents& to) const override { value_->write(to); }

  std::function<void()> prepare(const CheckpointStep& from) const override {
    CommHookState state = state_of(from, from.rank() % from.shards());
    if (!from.has_as_many_ranks()) {
      if (from.rank() >= from.shards()) state.left_out.assign(parameters_.size(), at::Tensor());
      for (int shard = from.rank() + from.ranks(); shard < from.shards(); shard += from.ranks())
        add(state_of(from, shard), state);
      for (at::Tensor& part : state.left_out)
        if (part.defined()) part = wide(part).mul(double(from.ranks()) / from.shards());
    }
    return [hook = hook_, state = std::move(state), parameters = parameters_]() mutable {
      hook.load_state_dict(state, parameters);
    };
  }

 private:
  CommHookState state_of(const CheckpointStep& from, int shard) const {
    value_->prepare_from_shard(from, shard)();
    return std::move(*read_);
  }

  /// Sums of half types overflow, or lose the digits that were left out. The hook rounds to its bucket's type in the end.
  static at::Tensor wide(const at::Tensor& part) {
    return part.scalar_type() == at::kHalf || part.scalar_type() == at::kBFloat16 ? part.to(at::kFloat) : part;
  }

  static void add(const CommHookState& other, CommHookState& to) {
    for (std::size_t i = 0; i < to.left_out.size(); ++i) {
      if (!to.left_out[i].defined())
        to.left_out[i] = other.left_out[i];
      else if (other.left_out[i].defined())
        to.left_out[i] = wide(to.left_out[i]).add(wide(other.left_out[i]));
    }
  }

  StatefulCommHook hook_;
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<CommHookState> read_ = std::make_shared<CommHookState>();  // by value_, last
  std::shared_ptr<ValuePart> value_;
};

}  // namespace

std::shared_ptr<CheckpointPart> make_hook_part(const std::string& name, const StatefulCommHook& hook,
                                               const std::vector<at::Tensor>& parameters) {
  return std::make_shared<HookPart>(name, hook, parameters);
}

}  // namespace shoal::detail
