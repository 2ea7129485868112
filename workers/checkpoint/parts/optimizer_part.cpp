#include <shoal/internal/workers/checkpoint/parts/optimizer_part.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/modules/each_once.h>
#include <shoal/internal/tensors/modules/kept_state.h>
#include <shoal/internal/workers/checkpoint/parts/tensor_entries.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>

namespace shoal::detail {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;

/// What torch's archive has, as a tensor of bytes.
at::Tensor bytes_of(torch::serialize::OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  const std::string text = stream.str();
  at::Tensor bytes = at::empty({std::int64_t(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

/// Calls load(archive) with the entry's bytes. Throws CheckpointError if libtorch cannot read them.
template <class Load>
void with_archive(const CheckpointStep::Found& found, Load&& load) {
  if (found.entry->kind != CheckpointEntryKind::kTensor || found.entry->type != "uint8" ||
      found.entry->shape.size() != 1)
    found.fail("it is no archive of libtorch there");
  std::string text(found.entry->bytes, '\0');
  found.read(std::as_writable_bytes(std::span(text)));
  try {
    std::istringstream stream(text);
    torch::serialize::InputArchive archive;
    archive.load_from(stream);
    load(archive);
  } catch (const c10::Error& error) {
    found.fail(fmt::format("libtorch cannot read it: {}", error.what_without_backtrace()));
  } catch (const std::logic_error& error) {  // of a number in it
    found.fail(fmt::format("libtorch cannot read it: {}", error.what()));
  }
}

constexpr const char* kSavedWhole = "an optimizer that libtorch saves as a whole (LBFGS, or a class of your own)";

/// The optimizers that are saved by parameter, each with an option that it alone has.
constexpr std::array<std::pair<const char*, std::string_view>, 4> kKinds{
    {{"SGD", "nesterov"}, {"Adam or AdamW", "amsgrad"}, {"RMSprop", "alpha"}, {"Adagrad", "lr_decay"}}};

/// Empty if the options are none of these.
std::string kind_of(const std::vector<std::string>& options) {
  for (const auto& [kind, option] : kKinds)
    if (std::ranges::find(options, option) != options.end()) return kind;
  return {};
}

std::string kind_of(Optimizer& optimizer) {
  if (!is_kept_by_parameter(optimizer)) return kSavedWhole;
  if (dynamic_cast<torch::optim::SGD*>(&optimizer)) return kKinds[0].first;
  if (dynamic_cast<torch::optim::RMSprop*>(&optimizer)) return kKinds[2].first;
  return dynamic_cast<torch::optim::Adagrad*>(&optimizer) ? kKinds[3].first : kKinds[1].first;
}

/// What an optimizer keeps, put aside.
class Contents {
 public:
  /// Nothing yet, with the optimizer's options.
  explicit Contents(const Optimizer& optimizer) {
    for (const auto& group : optimizer.param_groups()) options_.push_back(group.options().clone());
  }
  void exchange(Optimizer& optimizer) {
    std::swap(optimizer.state(), state_);
    for (std::size_t i = 0; i < options_.size(); ++i) {
      auto& group = optimizer.param_groups()[i];
      auto other = group.options().clone();
      group.set_options(std::exchange(options_[i], std::move(other)));
    }
  }

 private:
  std::remove_reference_t<decltype(std::declval<Optimizer&>().state())> state_;
  std::vector<std::unique_ptr<OptimizerOptions>> options_;
};

class OptimizerPart final : public CheckpointPart {
 public:
  OptimizerPart(const std::string& name, Optimizer& optimizer, std::vector<std::string> keys, OnRanks on_ranks,
                OptimizerSpan span)
      : CheckpointPart(name), optimizer_(optimizer), keys_(std::move(keys)), on_ranks_(on_ranks), span_(span) {}

  void write(ShardContents& to) const override {
    if (!is_kept_by_parameter(optimizer_)) {
      if (on_ranks_ == OnRanks::equal && to.rank() != 0) return;
      forget_scratch();
      try {
        torch::serialize::OutputArchive archive;
        optimizer_.save(archive);
        return to.add(whole_name(), bytes_of(archive));
      } catch (const c10::Error& error) {
        throw std::invalid_argument(fmt::format("'{}' of a checkpoint: libtorch cannot write this optimizer: {}",
                                                name(), error.what_without_backtrace()));
      }
    }
    const std::vector<at::Tensor> parameters = parameters_of(optimizer_);
    const std::vector<bool> here = written_here(to, parameters, on_ranks_);
    SeenTensors seen;  // one that the optimizer has twice has one state
    for_each_kept(optimizer_, MissingState::kSkip, [&](int index, const at::Tensor& parameter, KeptState& kept) {
      if (!seen.is_new(parameter) || !here[std::size_t(index)]) return;
      if (kept.step) to.add(state_name(index, "step"), at::scalar_tensor(*kept.step, at::kLong));
      for (const auto& [what, tensor] : kept.tensors)
        if (tensor->defined()) to.add(state_name(index, what), *tensor);
    });
    // Each rank writes them: they are small, and then all find them in their own shard.
    for (std::size_t i = 0; i < optimizer_.param_groups().size(); ++i) {
      torch::serialize::OutputArchive archive;
      optimizer_.param_groups()[i].options().serialize(archive);
      to.add(group_name(i), bytes_of(archive));
    }
  }

  std::function<void()> prepare(const CheckpointStep& from) const override {
    check_kind(from);
    if (!is_kept_by_parameter(optimizer_)) {
      // libtorch finds out while it loads what does not fit: so it does that now, and the optimizer then gets back what
      // it had.
      const auto loaded = std::make_shared<Contents>(optimizer_);
      loaded->exchange(optimizer_);
      try {
        with_archive(from.at(whole_name(), shards()),
                     [&](torch::serialize::InputArchive& archive) { optimizer_.load(archive); });
      } catch (...) {
        loaded->exchange(optimizer_);
        throw;
      }
      loaded->exchange(optimizer_);
      return [this, loaded] { loaded->exchange(optimizer_); };
    }
    auto options = prepare_options(from);
    auto [states, unused] = find_states(from);
    return [this, options = std::move(options), states = std::move(states), unused = std::move(unused)] {
      for (std::size_t i = 0; i < options.size(); ++i) optimizer_.param_groups()[i].set_options(options[i]->clone());
      load_states(states);
      for (void* parameter : unused) optimizer_.state().erase(parameter);
    };
  }

 private:
  using States = std::unordered_map<std::string, CheckpointStep::Found>;

  /// LBFGS keeps numbers of its last step that the next one writes before it reads them. libtorch cannot write them, as
  /// some are undefined tensors.
  void forget_scratch() const {
    if (!dynamic_cast<torch::optim::LBFGS*>(&optimizer_)) return;
    for (auto& [parameter, state] : optimizer_.state())
      static_cast<torch::optim::LBFGSParamState&>(*state).al(std::nullopt);
  }

  /// A part of a sharded optimizer's state may have been another rank's.
  CheckpointStep::Shards shards() const {
    return on_ranks_ == OnRanks::own && span_ == OptimizerSpan::kAllParameters ? CheckpointStep::Shards::own
                                                                               : CheckpointStep::Shards::all;
  }

  std::string whole_name() const { return name() + "/archive"; }
  std::string group_name(std::size_t group) const { return fmt::format("{}#group.{}", name(), group); }
  std::string state_name(int parameter, const char* what) const {
    return fmt::format("{}/{}/{}", name(), keys_[std::size_t(parameter)], what);
  }

  std::vector<std::shared_ptr<OptimizerOptions>> prepare_options(const CheckpointStep& from) const {
    const std::size_t groups = optimizer_.param_groups().size();
    std::size_t there = 0;
    while (from.find(group_name(there), shards())) ++there;
    if (there != 0 && there != groups)
      from.at(group_name(0), shards())
          .fail(fmt::format("there are {} groups of parameters there, and {} in this program's optimizer: make as many",
                            there, groups));
    std::vector<std::shared_ptr<OptimizerOptions>> options;
    for (std::size_t i = 0; i < groups; ++i) {
      options.emplace_back(optimizer_.param_groups()[i].options().clone());
      with_archive(from.at(group_name(i), shards()),
                   [&](torch::serialize::InputArchive& archive) { options.back()->serialize(archive); });
    }
    return options;
  }

  /// Throws CheckpointError if it is another optimizer's state. Adam and AdamW keep the same.
  void check_kind(const CheckpointStep& from) const {
    std::string there;
    const auto whole = from.find(whole_name(), shards()), group = from.find(group_name(0), shards());
    if (whole)
      there = kSavedWhole;
    else if (group)
      with_archive(group, [&](torch::serialize::InputArchive& archive) { there = kind_of(archive.keys()); });
    if (const std::string here = kind_of(optimizer_); !there.empty() && there != here)
      (whole ? whole : group)
          .fail(
              fmt::format("it is the state of {}, and this program's optimizer is {}: make the one that was saved, or "
                          "leave the part '{}' out",
                          there, c10::demangle(typeid(optimizer_).name()), name()));
  }

  /// The entries of all that the optimizer keeps, and the parameters for which there is nothing.
  std::pair<States, std::vector<void*>> find_states(const CheckpointStep& from) const {
    States states;
    std::vector<void*> unused;
    std::set<std::string> own;
    for_each_kept(optimizer_, MissingState::kShow, [&](int index, const at::Tensor& parameter, KeptState& kept) {
      std::vector<std::string> names;
      if (kept.step) names.push_back(state_name(index, "step"));
      for (const auto& [what, tensor] : kept.tensors) names.push_back(state_name(index, what));
      std::size_t there = 0;
      for (const std::string& each : names) {
        own.insert(each);
        const auto found = from.find(each, shards());
        if (!found) continue;
        ++there;
        const bool is_step = kept.step && each == names.front();
        check_tensor(found, is_step ? at::IntArrayRef() : parameter.sizes(),
                     is_step ? at::kLong : parameter.scalar_type());
        states.emplace(each, found);
      }
      // Before its first step a parameter has no state.
      if (there == 0) unused.push_back(parameter.unsafeGetTensorImpl());
      if (there != 0 && there != names.size())
        for (const std::string& each : names) (void)from.at(each, shards());  // throws for the one that is missing
    });
    // One with other parameters or of another kind has left something here. A rank's part knows only its own.
    for (const std::string& there : from.names_below(name() + "/", shards()))
      if (!own.contains(there) && (span_ == OptimizerSpan::kAllParameters || is_of_own_parameter(there)))
        from.at(there, shards())
            .fail("this program's optimizer does not keep it: give it the options and the parameters that it had");
    return {std::move(states), std::move(unused)};
  }

  bool is_of_own_parameter(const std::string& entry) const {
    for (const std::string& key : keys_)
      if (entry.starts_with(fmt::format("{}/{}/", name(), key))) return true;
    return false;
  }

  void load_states(const States& states) const {
    for_each_kept(optimizer_, MissingState::kMake, [&](int index, const at::Tensor& parameter, KeptState& kept) {
      if (kept.step)
        if (const auto found = states.find(state_name(index, "step")); found != states.end())
          found->second.read(std::as_writable_bytes(std::span(kept.step, 1)));
      for (const auto& [what, tensor] : kept.tensors) {
        const auto found = states.find(state_name(index, what));
        if (found == states.end()) continue;
        // What is there stays where it is: others may share it.
        if (!tensor->defined() || tensor->sizes() != parameter.sizes() ||
            tensor->scalar_type() != parameter.scalar_type())
          *tensor = at::empty_like(parameter.detach());
        read_tensor(found->second, *tensor);
      }
    });
  }

  Optimizer& optimizer_;
  std::vector<std::string> keys_;  // of all parameters, in the groups' order
  OnRanks on_ranks_;
  OptimizerSpan span_;
};

}  // namespace

std::vector<std::string> names_of_parameters(const std::string& part, const std::vector<at::Tensor>& parameters,
                                             const torch::nn::Module* module) {
  std::unordered_map<const void*, std::string> names;
  if (module)
    for (const auto& item : module->named_parameters())
      names.try_emplace(item.value().unsafeGetTensorImpl(), item.key());
  std::vector<std::string> keys;
  for (const at::Tensor& parameter : parameters) {
    if (!module) {
      keys.push_back(std::to_string(keys.size()));
      continue;
    }
    const auto found = names.find(parameter.unsafeGetTensorImpl());
    if (found == names.end())
      throw std::invalid_argument(fmt::format(
          "'{}' of a checkpoint: the optimizer's parameter {} is none of the module's: give the module over "
          "whose parameters it was made",
          part, keys.size()));
    keys.push_back(found->second);
  }
  return keys;
}

std::vector<at::Tensor> parameters_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups())
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  return parameters;
}

std::shared_ptr<CheckpointPart> make_optimizer_part(const std::string& name, Optimizer& optimizer,
                                                    std::vector<std::string> names, OnRanks on_ranks,
                                                    OptimizerSpan span) {
  return std::make_shared<OptimizerPart>(name, optimizer, std::move(names), on_ranks, span);
}

}  // namespace shoal::detail
