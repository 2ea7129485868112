#include <shoal/tensors/module_state.h>

#include <c10/core/StorageImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

#include <map>
#include <stdexcept>
#include <unordered_map>

namespace shoal {
namespace {

struct Named {
  std::string key;
  at::Tensor tensor;
  bool buffer;
};

/// All that are there, under each of their names.
std::vector<Named> named_tensors(const torch::nn::Module& module) {
  std::vector<Named> all;
  for (const auto& entry : module.named_parameters())
    if (entry.value().defined()) all.push_back({entry.key(), entry.value(), false});
  for (const auto& entry : module.named_buffers())
    if (entry.value().defined()) all.push_back({entry.key(), entry.value(), true});
  return all;
}

[[noreturn]] void mismatch(const std::string& what) { throw std::invalid_argument("module state: " + what); }

std::string describe(const at::Tensor& tensor) {
  return fmt::format("[{}] {}", fmt::join(tensor.sizes(), ", "), c10::toString(tensor.scalar_type()));
}

/// For each of the module's tensors the state's. Everything is looked at before anything is changed.
std::vector<std::pair<Named, const ModuleState::Entry*>> match(const torch::nn::Module& module,
                                                               const ModuleState& state) {
  std::map<std::string, const ModuleState::Entry*> entries;
  for (const auto& entry : state.entries) {
    if (entry.tensor >= state.tensors.size() || !state.tensors[entry.tensor].defined())
      mismatch(fmt::format("'{}' has no tensor", entry.key));
    if (!entries.emplace(entry.key, &entry).second) mismatch(fmt::format("'{}' is there twice", entry.key));
  }
  std::vector<std::pair<Named, const ModuleState::Entry*>> pairs;
  std::unordered_map<const c10::TensorImpl*, const ModuleState::Entry*> entry_of;
  std::unordered_map<std::uint32_t, const Named*> tensor_of;
  std::vector<Named> all = named_tensors(module);
  for (const Named& named : all) {
    auto found = entries.find(named.key);
    if (found == entries.end()) mismatch(fmt::format("the module's '{}' is missing in it", named.key));
    const ModuleState::Entry& entry = *found->second;
    const at::Tensor& tensor = state.tensors[entry.tensor];
    if (entry.buffer != named.buffer)
      mismatch(fmt::format("'{}' is a {} in it, and a {} of the module", entry.key,
                           entry.buffer ? "buffer" : "parameter", named.buffer ? "buffer" : "parameter"));
    if (tensor.sizes() != named.tensor.sizes() || tensor.scalar_type() != named.tensor.scalar_type() ||
        tensor.layout() != named.tensor.layout() || tensor.device() != named.tensor.device())
      mismatch(
          fmt::format("'{}' is {} in it, and {} in the module", entry.key, describe(tensor), describe(named.tensor)));
    auto [first_entry, new_here] = entry_of.try_emplace(named.tensor.unsafeGetTensorImpl(), &entry);
    auto [first_named, new_there] = tensor_of.try_emplace(entry.tensor, &named);
    if (first_entry->second->tensor != entry.tensor)
      mismatch(fmt::format("'{}' and '{}' are tied in the module, but not in it", first_entry->second->key, entry.key));
    if (new_here && !new_there)
      mismatch(fmt::format("'{}' and '{}' are tied in it, but not in the module: tie them in its constructor",
                           first_named->second->key, entry.key));
    pairs.emplace_back(named, &entry);
    entries.erase(found);
  }
  if (!entries.empty()) mismatch(fmt::format("the module has no '{}'", entries.begin()->first));
  return pairs;
}

}  // namespace

const at::Tensor& ModuleState::at(const std::string& key) const {
  for (const Entry& entry : entries)
    if (entry.key == key && entry.tensor < tensors.size()) return tensors[entry.tensor];
  mismatch(fmt::format("there is no '{}' in it", key));
}

ModuleState module_state(const torch::nn::Module& module) {
  ModuleState state;
  std::unordered_map<const c10::TensorImpl*, std::uint32_t> index_of;
  for (const Named& named : named_tensors(module)) {
    auto [found, is_new] =
        index_of.try_emplace(named.tensor.unsafeGetTensorImpl(), std::uint32_t(state.tensors.size()));
    if (is_new) state.tensors.push_back(named.tensor.detach());
    state.entries.push_back({named.key, named.buffer, named.tensor.requires_grad(), found->second});
  }
  return state;
}

void load_module_state(torch::nn::Module& module, const ModuleState& state) {
  auto pairs = match(module, state);
  torch::NoGradGuard no_grad;
  for (auto& [named, entry] : pairs) named.tensor.copy_(state.tensors[entry->tensor]);
}

void use_module_state(torch::nn::Module& module, const ModuleState& state) {
  for (auto& [named, entry] : match(module, state)) {
    at::Tensor tensor = named.tensor;
    tensor.set_data(state.tensors[entry->tensor].detach());
    if (tensor.is_leaf()) tensor.set_requires_grad(entry->requires_grad);
  }
}

namespace module_codec {

std::vector<bool> training_flags(const torch::nn::Module& module) {
  std::vector<bool> flags{module.is_training()};
  for (const auto& child : module.modules(/*include_self=*/false)) flags.push_back(child->is_training());
  return flags;
}

void set_training_flags(torch::nn::Module& module, const std::vector<bool>& flags) {
  auto children = module.modules(/*include_self=*/false);
  if (flags.size() != children.size() + 1)
    throw DecodeError(
        fmt::format("a module from another process: {} submodules there, {} here", flags.size(), children.size() + 1));
  module.train(flags[0]);
  // From the outermost on: train() reaches all below.
  for (std::size_t i = 0; i < children.size(); ++i) children[i]->train(flags[i + 1]);
}

void adopt(torch::nn::Module& module, const ModuleState& state) {
  try {
    use_module_state(module, state);
  } catch (const std::invalid_argument& error) {
    throw DecodeError(fmt::format("a module from another process: {}", error.what()));
  }
}

}  // namespace module_codec
}  // namespace shoal
