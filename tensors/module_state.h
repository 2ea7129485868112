// The parameters and buffers of a module as a value, and modules as arguments, results and messages.
#pragma once

#include <shoal/ipc/codec.h>
#include <shoal/tensors/codec.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class SequentialImpl;
class ModuleListImpl;
class ModuleDictImpl;
class ParameterListImpl;
class ParameterDictImpl;
}  // namespace torch::nn

namespace shoal {

/// A module's state_dict: its tensors, each once, and the names under which they are found. A plain, encodable value:
/// the tensors of a shared module cross as handles, those of a private module as copies. They are the module's own,
/// detached; making a ModuleState copies nothing.
struct ModuleState {
  /// One name of the state_dict.
  struct Entry {
    std::string key;       ///< as in torch's state_dict: "encoder.0.weight"
    bool buffer;           ///< a buffer, and not a parameter
    bool requires_grad;    ///< as the parameter does
    std::uint32_t tensor;  ///< index into `tensors`; two keys with the same index are tied
  };
  std::vector<at::Tensor> tensors;  ///< each once, detached
  std::vector<Entry> entries;       ///< parameters, then buffers, in the module's order

  /// The tensor of this key. Throws std::invalid_argument if there is none.
  const at::Tensor& at(const std::string& key) const;
};

/// The module's state as it is now: its own tensors, of which nothing is copied.
ModuleState module_state(const torch::nn::Module& module);

/// Copies the values into the module's own parameters and buffers, like torch's load_state_dict. Throws
/// std::invalid_argument, which names the key, and changes nothing, if a key is missing or extra, has another shape or
/// type, or is tied to another one only on one side.
void load_module_state(torch::nn::Module& module, const ModuleState& state);

/// Makes the state's memory the module's parameters and buffers, with the state's requires_grad: with the state of a
/// shared module this is the sender's memory. Optimizers that have the parameters go on working. Throws like
/// load_module_state.
void use_module_state(torch::nn::Module& module, const ModuleState& state);

/// module_state() for torch's holders and shared pointers to modules.
template <class Holder>
  requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
ModuleState module_state(const Holder& holder) {
  return module_state(static_cast<const torch::nn::Module&>(*holder));
}
/// load_module_state() for torch's holders and shared pointers to modules.
template <class Holder>
  requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
void load_module_state(Holder& holder, const ModuleState& state) {
  load_module_state(static_cast<torch::nn::Module&>(*holder), state);
}
/// use_module_state() for torch's holders and shared pointers to modules.
template <class Holder>
  requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
void use_module_state(Holder& holder, const ModuleState& state) {
  use_module_state(static_cast<torch::nn::Module&>(*holder), state);
}

namespace module_codec {

/// What a module of this type is constructed from: what shoal_arguments() returns, or nothing.
template <class Module>
auto arguments_of(const Module& module) {
  if constexpr (requires { module.shoal_arguments(); })
    return module.shoal_arguments();
  else
    return std::tuple<>{};
}
template <class Module>
using Arguments = decltype(arguments_of(std::declval<const Module&>()));

/// Modules whose contents are put in from outside: a constructed one is empty, so they cannot cross. Put one into a
/// module of your own.
template <class Module>
constexpr bool kContainer =
    std::is_same_v<Module, torch::nn::SequentialImpl> || std::is_same_v<Module, torch::nn::ModuleListImpl> ||
    std::is_same_v<Module, torch::nn::ModuleDictImpl> || std::is_same_v<Module, torch::nn::ParameterListImpl> ||
    std::is_same_v<Module, torch::nn::ParameterDictImpl>;

template <class Module, class Tuple>
constexpr bool kConstructible = false;
template <class Module, class... Parts>
constexpr bool kConstructible<Module, std::tuple<Parts...>> =
    (Encodable<Parts> && ...) && std::constructible_from<Module, Parts...>;

/// TORCH_MODULE's holders of such modules.
template <class Holder>
concept ModuleHolder = requires { typename Holder::ContainedType; } &&
                       std::derived_from<typename Holder::ContainedType, torch::nn::Module> &&
                       std::derived_from<Holder, torch::nn::ModuleHolder<typename Holder::ContainedType>> &&
                       !kContainer<typename Holder::ContainedType> &&
                       kConstructible<typename Holder::ContainedType, Arguments<typename Holder::ContainedType>>;

/// Whether the module and each of its submodules is training, in order.
std::vector<bool> training_flags(const torch::nn::Module& module);
void set_training_flags(torch::nn::Module& module, const std::vector<bool>& flags);  ///< throws DecodeError
/// Calls use_module_state(); throws DecodeError if the state does not fit.
void adopt(torch::nn::Module& module, const ModuleState& state);

}  // namespace module_codec

/// Holders (`struct NetImpl : torch::nn::Module { ... }; TORCH_MODULE(Net);`) cross as the module's constructor
/// arguments and its state. The receiver constructs a module and makes the state its own. NetImpl is constructible
/// without arguments, or has
///
///   auto shoal_arguments() const { return std::tuple(inputs_, outputs_); }
///
/// whose parts are encodable and are what its constructor takes.
///
/// * Kept: parameters and buffers, ties, requires_grad, training or evaluating.
/// * Not kept: gradients, hooks, and members that are neither parameters nor buffers.
template <module_codec::ModuleHolder Holder>
struct Codec<Holder> {
  using Module = typename Holder::ContainedType;
  using Arguments = module_codec::Arguments<Module>;

  static constexpr std::uint64_t schema() {
    return schema_hash("torch::nn::ModuleHolder", schema_of<Arguments>(), schema_of<ModuleState>());
  }
  static void encode(Encoder& encoder, const Holder& holder) {
    shoal::encode(encoder, !holder.is_empty());
    if (holder.is_empty()) return;
    const Module& module = *holder;
    shoal::encode(encoder, module_codec::arguments_of(module));
    shoal::encode(encoder, module_codec::training_flags(module));
    shoal::encode(encoder, module_state(static_cast<const torch::nn::Module&>(module)));
  }
  static Holder decode(Decoder& decoder) {
    if (!shoal::decode<bool>(decoder)) return Holder(nullptr);
    auto made =
        std::apply([](auto&&... parts) { return std::make_shared<Module>(std::forward<decltype(parts)>(parts)...); },
                   shoal::decode<Arguments>(decoder));
    const auto training = shoal::decode<std::vector<bool>>(decoder);
    module_codec::adopt(*made, shoal::decode<ModuleState>(decoder));
    module_codec::set_training_flags(*made, training);
    return Holder(std::move(made));
  }
};

}  // namespace shoal
