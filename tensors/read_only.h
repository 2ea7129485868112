// Tensors that are published once and never written to afterwards.
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

/// An operation was about to write to a read-only tensor. It throws before it writes, in the writer alone. A write that
/// no operation of libtorch announces raises SIGSEGV in the writer: its stderr gets one line with this name, and the
/// parent's exception has the name, too (ProcessExited::exception_type).
class WriteToReadOnlyTensor : public Error {
 public:
  using Error::Error;
};

/// What a read-only tensor is called, and what else may be done with it.
struct ReadOnlyOptions {
  /// The tensor's name in errors, beside its shape and type. For a module it goes before its tensors' own names.
  std::string name = {};
  /// Allows data_ptr(). By default it is refused, since libtorch counts it as a write, whether the pointer is const or
  /// not. Set this for libraries that read through the pointer. In-place operations are then no longer refused in
  /// advance: they fault. Sparse and quantized tensors and the parameters of LSTM, GRU and RNN always have it, because
  /// libtorch's own kernels read them through data_ptr().
  bool allow_data_ptr = false;
};

/// Publishes the tensor. It copies the tensor's storage into the shared heap once more, and makes all views of the
/// storage see that copy, through a mapping of the heap that cannot be written to. Receivers in other processes see the
/// same memory through such a mapping, too. In-place operations throw WriteToReadOnlyTensor; writes through pointers
/// fault. For a sparse tensor its indices and values are published. Does nothing if the tensor is read-only already.
///
/// Throws std::invalid_argument if the tensor is shared and others have it already, who could go on writing;
/// OutOfSharedMemory. It cannot prevent writes to computed addresses of the heap, because each process has a second,
/// writable mapping.
at::Tensor& read_only(const ReadOnlyOptions& options, at::Tensor& tensor);
/// read_only() for a tensor that is the result of an expression.
inline at::Tensor read_only(const ReadOnlyOptions& options, at::Tensor&& tensor) { return read_only(options, tensor); }
inline at::Tensor& read_only(at::Tensor& tensor) { return read_only(ReadOnlyOptions{}, tensor); }  ///< without a name
inline at::Tensor read_only(at::Tensor&& tensor) { return read_only(tensor); }                     ///< without a name

/// Publishes all parameters and buffers of the module, as an inference server does. Gradients stay as they are. A layer
/// that writes to its buffers afterwards (BatchNorm while training) gets WriteToReadOnlyTensor, with the buffer's name.
void read_only(const ReadOnlyOptions& options, torch::nn::Module& module);
/// read_only() for torch's holders and shared pointers to modules.
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

/// Stored in the block for its receivers. Not for users.
inline constexpr std::uint32_t kReadOnlyAllowsDataPtr = 1;

}  // namespace shoal
