// A TorchScript module taken apart: code and structure as bytes, and the storages of its tensors beside them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace shoal {

/// `archive` is a file in the format that torch.package uses for modules that share storages, but without the storages.
/// These are `storages`, each as a tensor of all its bytes; the archive refers to them by `keys`. Plain and encodable.
struct ScriptArchive {
  at::Tensor archive;
  std::vector<std::string> keys;
  std::vector<at::Tensor> storages;
};

/// Takes the module apart. Its tensors' storages become read-only in place, in the shared heap, and so does the module
/// itself. `name` comes before their own names in errors. Throws std::invalid_argument for a tensor that is not on the
/// CPU, Error for what libtorch cannot write.
ScriptArchive take_apart(const torch::jit::Module& module, std::string_view name, bool allow_data_ptr);

/// Makes a module over the archive's storages, which are not copied. Throws Error.
torch::jit::Module put_together(const ScriptArchive& parts);

}  // namespace shoal
