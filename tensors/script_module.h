// TorchScript modules whose weights are there once for all processes.
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

/// A TorchScript module in the shared heap: its code as bytes, and its parameters, buffers, other tensors and constants
/// as read-only tensors. A handle: a copy is the same module, also in another process, which makes a module of its own
/// over the same memory when it first needs one (it parses the code, and copies no weight).
///
///   shoal::SharedScriptModule model = shoal::load_shared("model.pt");
///   shoal::Pool pool({.processes = 4}, +[](shoal::SharedScriptModule given) { the_model = given; }, model);
///
/// Whatever writes to a weight gets WriteToReadOnlyTensor (see read_only.h), a BatchNorm that is training among them:
/// call eval() before. Where the code has LSTMs and other kernels that read through pointers to write, all tensors are
/// published with allow_data_ptr. A process keeps the last module that it was sent, so that tasks which bring the same
/// one again find it made: the weights' memory is freed when that has been replaced, or the process ends.
///
/// Lasts as long as anyone has it. Threads and processes: any, forward() at once included; what a thread sets in
/// module() (train(), attributes) is set for all of its process.
class SharedScriptModule {
 public:
  SharedScriptModule() = default;
  /// Publishes a module: its tensors become read-only where they are, in the shared heap. Throws std::invalid_argument
  /// where one is not on the CPU, or others have it already; Error where libtorch cannot save the module;
  /// OutOfSharedMemory.
  explicit SharedScriptModule(const torch::jit::Module& module, const ReadOnlyOptions& options = {});

  /// This process's module. Throws std::invalid_argument where there is none.
  torch::jit::Module module() const;
  /// The module's forward() with these inputs. Throws what libtorch throws, and std::invalid_argument where there is
  /// no module.
  c10::IValue forward(std::vector<c10::IValue> inputs) const;
  /// For the usual kind, of one tensor to one tensor.
  at::Tensor operator()(const at::Tensor& input) const;

  /// Of all its tensors, in the heap.
  std::size_t bytes() const;
  explicit operator bool() const { return parts_ != nullptr; }  ///< whether there is a module

 private:
  friend struct Codec<SharedScriptModule>;
  struct Parts;
  explicit SharedScriptModule(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<Parts> parts_;
};

/// Of a file by torch.jit.save or ScriptModule.save(). Besides what SharedScriptModule throws: Error where libtorch
/// cannot read the file. What is damaged within the weights' bytes libtorch does not notice.
SharedScriptModule load_shared(const std::string& path, const ReadOnlyOptions& options = {});

template <>
struct Codec<SharedScriptModule> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::SharedScriptModule", std::uint64_t(1)); }
  static void encode(Encoder& encoder, const SharedScriptModule& module);
  static SharedScriptModule decode(Decoder& decoder);
};

}  // namespace shoal
