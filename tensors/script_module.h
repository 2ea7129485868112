// TorchScript modules whose weights exist once for all processes.
#pragma once

#include <ATen/core/ivalue.h>
#include <shoal/ipc/codec.h>
#include <shoal/tensors/read_only.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace shoal {

/// A TorchScript module in the shared heap: its code as bytes; its parameters, buffers, other tensors and constants as
/// read-only tensors. A handle: copies refer to the same module, also in other processes. Each process makes a module
/// of its own over the same memory when it first needs one: it parses the code and copies no weight.
///
///   shoal::SharedScriptModule model = shoal::load_shared("model.pt");
///   shoal::Pool pool({.processes = 4}, +[](shoal::SharedScriptModule given) { the_model = given; }, model);
///
/// * A write to a weight throws WriteToReadOnlyTensor (see read_only.h). A BatchNorm that is training writes: call
///   eval() before.
/// * If the code contains LSTMs or other kernels that read through mutable pointers, all tensors are published with
///   allow_data_ptr.
/// * Each process keeps the last module that it received, so tasks that bring the same one again find it made. The
///   weights' memory is freed when another module has replaced it or the process has ended.
/// * Threads and processes: any, also forward() at the same time. What one thread sets in module() (train(),
///   attributes) is set for its whole process.
class SharedScriptModule {
 public:
  SharedScriptModule() = default;
  /// Publishes a module: its tensors become read-only in place, in the shared heap. Throws std::invalid_argument if a
  /// tensor is not on the CPU or other processes have it already; Error if libtorch cannot save the module;
  /// OutOfSharedMemory.
  explicit SharedScriptModule(const torch::jit::Module& module, const ReadOnlyOptions& options = {});

  /// This process's module. Throws std::invalid_argument if this object is empty.
  torch::jit::Module module() const;
  /// The module's forward() with these inputs. Throws what libtorch throws, and std::invalid_argument if there is
  /// no module.
  c10::IValue forward(std::vector<c10::IValue> inputs) const;
  /// forward() for a module that takes one tensor and returns one.
  at::Tensor operator()(const at::Tensor& input) const;

  /// Bytes of all its tensors in the heap.
  std::size_t bytes() const;
  explicit operator bool() const { return parts_ != nullptr; }  ///< whether there is a module

 private:
  friend struct Codec<SharedScriptModule>;
  struct Parts;
  explicit SharedScriptModule(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<Parts> parts_;
};

/// Loads and publishes a file that torch.jit.save or ScriptModule.save() wrote. Throws what SharedScriptModule throws,
/// and Error if libtorch cannot read the file. libtorch does not notice damage inside the weights' bytes.
SharedScriptModule load_shared(const std::string& path, const ReadOnlyOptions& options = {});

template <>
struct Codec<SharedScriptModule> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::SharedScriptModule", std::uint64_t(1)); }
  static void encode(Encoder& encoder, const SharedScriptModule& module);
  static SharedScriptModule decode(Decoder& decoder);
};

}  // namespace shoal
