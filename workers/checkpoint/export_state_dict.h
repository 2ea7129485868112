// Weights as files of torch's own format, from and to Python's torch.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace shoal {

/// Writes the module's state_dict as a file that Python's torch.load() reads, also with weights_only: a dict of names and
/// tensors, for load_state_dict(). Written as a whole or not at all. Throws SystemError, and Error for what libtorch
/// cannot write.
void export_state_dict(const std::filesystem::path& path, const torch::nn::Module& module);

/// How import_state_dict() takes what does not fit.
struct ImportOptions {
  /// Whether a name that only the module or only the file has is an error. Without it these are left as they are: a
  /// network that was trained before, with another head. A tensor of another shape is one always.
  bool strict = true;
  /// Whether tensors of other types than the module's are converted, as by copy_(): float32 into bfloat16.
  bool cast = false;
};

/// The names that did not fit, sorted; with ImportOptions::strict none.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys;     ///< the module's, which the file does not have
  std::vector<std::string> unexpected_keys;  ///< the file's, which the module does not have
};

/// Copies a state_dict that Python's torch.save(dict(module.state_dict()), path) or export_state_dict() wrote into the
/// module's own parameters and buffers. (libtorch does not read the OrderedDict that state_dict() itself is.) Throws
/// CheckpointError if a name is missing or extra, or a tensor has another shape or type, unless the options allow it, and
/// then changes nothing; if no name fits, too; CheckpointError and SystemError if the file cannot be read.
IncompatibleKeys import_state_dict(const std::filesystem::path& path, torch::nn::Module& module,
                                   const ImportOptions& options = {});

/// export_state_dict() for torch's holders and shared pointers to modules.
template <class Holder>
  requires requires(const Holder& holder) { static_cast<const torch::nn::Module&>(*holder); }
void export_state_dict(const std::filesystem::path& path, const Holder& holder) {
  export_state_dict(path, static_cast<const torch::nn::Module&>(*holder));
}
/// import_state_dict() for torch's holders and shared pointers to modules.
template <class Holder>
  requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
IncompatibleKeys import_state_dict(const std::filesystem::path& path, Holder& holder,
                                   const ImportOptions& options = {}) {
  return import_state_dict(path, static_cast<torch::nn::Module&>(*holder), options);
}

}  // namespace shoal
