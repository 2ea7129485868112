// Weights as files of torch's own format, from and to Python's torch.
#pragma once

#include <filesystem>

namespace torch::nn {
class Module;
}

namespace shoal {

/// Writes the module's state_dict as a file that Python's torch.load() reads, also with weights_only: a dict of names and
/// tensors, for load_state_dict(). Written as a whole or not at all. Throws SystemError, and Error for what libtorch
/// cannot write.
void export_state_dict(const std::filesystem::path& path, const torch::nn::Module& module);

/// Copies a state_dict that Python's torch.save(dict(module.state_dict()), path) or export_state_dict() wrote into the
/// module's own parameters and buffers. (libtorch does not read the OrderedDict that state_dict() itself is.) Throws CheckpointError if a name is missing or extra, or a tensor has another shape or
/// type, and then changes nothing; CheckpointError and SystemError if the file cannot be read.
void import_state_dict(const std::filesystem::path& path, torch::nn::Module& module);

/// export_state_dict() for torch's holders and shared pointers to modules.
template <class Holder>
  requires requires(const Holder& holder) { static_cast<const torch::nn::Module&>(*holder); }
void export_state_dict(const std::filesystem::path& path, const Holder& holder) {
  export_state_dict(path, static_cast<const torch::nn::Module&>(*holder));
}
/// import_state_dict() for torch's holders and shared pointers to modules.
template <class Holder>
  requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
void import_state_dict(const std::filesystem::path& path, Holder& holder) {
  import_state_dict(path, static_cast<torch::nn::Module&>(*holder));
}

}  // namespace shoal
