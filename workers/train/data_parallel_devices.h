// data_parallel: one call of a module over several devices, a part of the batch on each, and what each device did.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <shoal/workers/train/data_parallel.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// Where data_parallel() computes.
struct DataParallelDevices {
  std::vector<at::Device> devices = {};                    ///< empty: all CUDA devices. The module lies on the first
  std::optional<at::Device> output_device = std::nullopt;  ///< none: the first
  std::int64_t dim = 0;                                    ///< along which inputs are divided and outputs put together
};

/// What a device did in a call of data_parallel().
struct DeviceShare {
  at::Device device = at::kCPU;                           ///< with its number
  std::int64_t samples = 0;                               ///< of the batch; 0: the batch had none for it
  double seconds = 0;                                     ///< of its forward(), by the device's own clock
  std::optional<std::int64_t> allocated_bytes = {};       ///< by libtorch's allocator after the call; none on the CPU
  std::optional<std::int64_t> peak_allocated_bytes = {};  ///< the most since the program began, or reset its peak
};

/// A table with a line for each device, as the imbalance is to be seen: the first one has the module, the outputs and, after
/// backward(), the sums of the gradients.
std::string device_table(const std::vector<DeviceShare>& shares);

namespace detail {

using DeviceForward = std::function<std::vector<at::Tensor>(torch::nn::Module&, const std::vector<at::Tensor>&)>;
std::vector<at::Tensor> forward_on_devices(const std::shared_ptr<torch::nn::Module>& module,
                                           const DeviceForward& forward, const std::vector<at::Tensor>& inputs,
                                           const DataParallelDevices& options, std::vector<DeviceShare>* shares);

}  // namespace detail

/// Calls forward() of a module on several devices at once: the inputs are divided along a dimension, each device computes a
/// part with a copy of the module that is made for this call, and the outputs come together on the output device. Gradients
/// of all copies add up in the module's own, in the order of the devices. torch::nn::parallel::data_parallel, which is in
/// libtorch's builds with CUDA alone; this is the same on any kind of device, also twice on one.
///
/// `module`: a holder (TORCH_MODULE) of one that can be copied (torch::nn::Cloneable), whose parameters and buffers lie on
/// the first device; the first part is computed by the module itself, so its batch norm's statistics are those that count.
/// `inputs`: one to eight tensors, as forward() takes them, with as many samples each; on any device. A batch of less
/// samples than devices leaves some out. The result is forward()'s: a tensor, a vector or a tuple of them.
/// `shares`: told what each device did; this waits for the devices.
///
/// Throws std::invalid_argument, which says what was wrong and where; what forward() throws on a device comes out as Error
/// with the device in front, when all devices have ended. Randomness: each device draws by its own generator.
/// Threads: one for each device beyond the first, until the call ends; several calls with one module want a lock.
template <class Net, class... Inputs>
auto data_parallel(const Net& module, const DataParallelDevices& options, std::vector<DeviceShare>* shares,
                   const Inputs&... inputs) {
  using Module = typename Net::ContainedType;
  using Result = decltype(std::declval<Module&>().forward(inputs...));
  static_assert(sizeof...(Inputs) >= 1 && sizeof...(Inputs) <= detail::kMostInputs, "one to eight tensors");
  return detail::from_outputs<Result>(
      detail::forward_on_devices(module.ptr(), detail::call_forward<Module>, {inputs...}, options, shares));
}

/// The same, for one input.
template <class Net>
auto data_parallel(const Net& module, const at::Tensor& input, const DataParallelDevices& options = {},
                   std::vector<DeviceShare>* shares = nullptr) {
  return data_parallel(module, options, shares, input);
}

}  // namespace shoal
