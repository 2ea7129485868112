// Sharing the parameters and buffers of modules.
#pragma once

#include <shoal/tensors/share.h>

#include <memory>
#include <utility>

namespace torch::nn {
class Module;
}

namespace shoal {

/// Moves every parameter, gradient and buffer of the module and its submodules into the shared heap, in place, like
/// torch's Module.share_memory(). Tied parameters stay tied.
void share_memory_(torch::nn::Module& module);
/// share_memory_() for torch's holders (`struct NetImpl; TORCH_MODULE(Net);`) and shared pointers to modules.
template <class Holder>
  requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
void share_memory_(Holder& holder) {
  share_memory_(static_cast<torch::nn::Module&>(*holder));
}

/// The opposite of share_memory_: calls unshare() for each of the tensors. Tied parameters stay tied.
void unshare(torch::nn::Module& module);
/// unshare() for torch's holders and shared pointers to modules.
template <class Holder>
  requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
void unshare(Holder& holder) {
  unshare(static_cast<torch::nn::Module&>(*holder));
}

/// Whether all parameters and buffers of the module are shared.
bool is_shared(const torch::nn::Module& module);

}  // namespace shoal
