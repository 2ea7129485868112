// Modules whose parameters and buffers are shared.
#pragma once

#include <shoal/tensors/share.h>

#include <memory>
#include <utility>

namespace torch::nn {
class Module;
}

namespace shoal {

/// Moves every parameter, gradient and buffer of the module and its submodules into the shared heap, in
/// place, as torch's Module.share_memory(). Tied parameters stay tied.
void share_memory_(torch::nn::Module& module);
/// For torch's holders (`struct NetImpl; TORCH_MODULE(Net);`) and shared pointers to modules.
template <class Holder>
  requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
void share_memory_(Holder& holder) {
  share_memory_(static_cast<torch::nn::Module&>(*holder));
}

/// The opposite: all of them private again, as unshare of each. Tied parameters stay tied.
void unshare(torch::nn::Module& module);
/// For torch's holders and shared pointers to modules.
template <class Holder>
  requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
void unshare(Holder& holder) {
  unshare(static_cast<torch::nn::Module&>(*holder));
}

/// Whether all its parameters and buffers are shared.
bool is_shared(const torch::nn::Module& module);

}  // namespace shoal
