// Tensors that are published once, and written to by nobody from then on.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/ipc/error.h>

#include <cstdint>
#include <string>
#include <utility>

namespace torch::nn {
class Module;
}

namespace shoal {

/// An operation that would have written to a read-only tensor. Thrown before anything is written, in the writer alone.
/// A write that no operation of libtorch announced is a SIGSEGV in the writer: one line on its stderr with this name,
/// and in the parent's exception (ProcessExited::exception_type).
class WriteToReadOnlyTensor : public Error {
 public:
  using Error::Error;
};

/// What a read-only tensor is called, and what else may be done with it.
struct ReadOnlyOptions {
  /// What errors call the tensor, with its shape and type. Of a module's tensors: in front of their own names.
  std::string name = {};
  /// libtorch takes data_ptr(), mutable or not, for the wish to write, and so it is refused. For libraries that read
  /// through it: with this it is a pointer, and in-place operations are not refused before they fault. Sparse and
  /// quantized tensors always have it, and LSTM's, GRU's and RNN's parameters: libtorch's own kernels for them read so.
  bool allow_data_ptr = false;
};

/// Publishes the tensor: copies its storage into the shared heap once more, and makes all views of it see that copy
/// through a mapping of the heap that cannot be written to; whoever receives it does too, in whatever process. In-place
/// operations throw WriteToReadOnlyTensor, writes through pointers fault. The memory is there once for all processes.
/// Of a sparse tensor the indices and values. Does nothing where the tensor is read-only already. Throws
/// std::invalid_argument where the tensor is shared and others have it already, who would go on writing;
/// OutOfSharedMemory. What it cannot prevent: writing to the heap by computed addresses, since its other mapping is
/// writable in all processes.
at::Tensor& read_only(const ReadOnlyOptions& options, at::Tensor& tensor);
/// For a tensor that is not a variable of one's own.
inline at::Tensor read_only(const ReadOnlyOptions& options, at::Tensor&& tensor) { return read_only(options, tensor); }
inline at::Tensor& read_only(at::Tensor& tensor) { return read_only(ReadOnlyOptions{}, tensor); }  ///< without a name
inline at::Tensor read_only(at::Tensor&& tensor) { return read_only(tensor); }                     ///< without a name

/// All parameters and buffers of the module, as an inference server publishes it. Gradients stay what they are. Layers
/// that write to their buffers (BatchNorm while training) are refused by name.
void read_only(const ReadOnlyOptions& options, torch::nn::Module& module);
/// For torch's holders and shared pointers to modules.
template <class Holder>
  requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
void read_only(const ReadOnlyOptions& options, Holder& holder) {
  read_only(options, static_cast<torch::nn::Module&>(*holder));
}
/// All parameters and buffers of the module, without a name.
template <class Module>
  requires requires(Module& module) { read_only(ReadOnlyOptions{}, module); } && (!std::is_same_v<Module, at::Tensor>)
void read_only(Module& module) {
  read_only(ReadOnlyOptions{}, module);
}

/// Whether the tensor's storage was published by read_only, here or by whoever sent it.
bool is_read_only(const at::Tensor& tensor);

/// In the block, for whoever receives it. Not for users.
inline constexpr std::uint32_t kReadOnlyAllowsDataPtr = 1;

}  // namespace shoal
