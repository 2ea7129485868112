// One call of a module over several devices: parts out, forward passes, outputs together, and what each device did.
#include <shoal/workers/train/data_parallel_devices.h>

#include <ATen/ThreadLocalState.h>
#include <ATen/ops/cat.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/parallel/replicas.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/failure.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

namespace shoal {
namespace detail {
namespace {

using std::invalid_argument;

std::string text_of(const at::Device& device) { return device.str(); }

/// Those that were asked for, each with its number.
std::vector<at::Device> resolved(const DataParallelDevices& options) {
  std::vector<at::Device> devices = options.devices;
  if (devices.empty()) {
    const int count =
        c10::impl::hasDeviceGuardImpl(at::kCUDA) ? c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount() : 0;
    for (int index = 0; index < count; ++index) devices.emplace_back(at::kCUDA, c10::DeviceIndex(index));
    if (devices.empty())
      throw invalid_argument("data_parallel: there is no CUDA device here: name the devices (.devices)");
  }
  for (at::Device& device : devices) {
    if (!c10::impl::hasDeviceGuardImpl(device.type()))
      throw invalid_argument(fmt::format("data_parallel: {}: this libtorch has no such device", text_of(device)));
    if (device.is_cpu()) continue;
    const c10::impl::VirtualGuardImpl guard(device.type());
    if (!device.has_index()) device = guard.getDevice();
    if (device.index() >= guard.deviceCount())
      throw invalid_argument(
          fmt::format("data_parallel: {}: there are {} of these here", text_of(device), int(guard.deviceCount())));
  }
  return devices;
}

void check_module(const torch::nn::Module& module, const at::Device& first) {
  const auto check = [&](const char* kind, const torch::OrderedDict<std::string, at::Tensor>& all) {
    for (const auto& item : all)
      if (item.value().device() != first)
        throw invalid_argument(
            fmt::format("data_parallel: the {} '{}' is on {}, and the first device is {}: move the module there "
                        "(module->to({}))",
                        kind, item.key(), text_of(item.value().device()), text_of(first), text_of(first)));
  };
  check("parameter", module.named_parameters());
  check("buffer", module.named_buffers());
}

/// What each device gets of each input. The number of parts is what the first input is good for.
std::vector<std::vector<at::Tensor>> scattered(const std::vector<at::Tensor>& inputs,
                                               const std::vector<at::Device>& devices, std::int64_t dim) {
  std::vector<std::vector<at::Tensor>> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    if (!input.defined()) throw invalid_argument(fmt::format("data_parallel: input {} is undefined", i));
    if (input.dim() == 0 || dim >= input.dim() || dim < -input.dim())
      throw invalid_argument(
          fmt::format("data_parallel: input {} has {} dimensions, and dim is {}", i, input.dim(), dim));
    if (input.size(dim) != inputs[0].size(dim))
      throw invalid_argument(fmt::format("data_parallel: input 0 has {} samples in dimension {}, and input {} has {}",
                                         inputs[0].size(dim), dim, i, input.size(dim)));
    std::vector<at::Tensor> chunks{input};
    if (input.size(dim) > 0) chunks = input.chunk(std::int64_t(devices.size()), dim);
    if (i == 0) parts.resize(chunks.size());
    for (std::size_t part = 0; part < chunks.size(); ++part)
      parts[part].push_back(chunks[part].to(devices[part], /*non_blocking=*/true));
  }
  return parts;
}

/// The time that a device needs for what is asked of it while this lives, by its own clock.
class DeviceClock {
 public:
  explicit DeviceClock(const at::Device& device) : device_(device) {
    if (!device.is_cpu()) begin_.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  }
  void begin() { mark(begin_, from_); }
  void end() {
    if (begin_) end_.emplace(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    mark(end_, to_);
  }
  double seconds() const {
    if (!end_) return std::chrono::duration<double>(to_ - from_).count();
    end_->synchronize();
    return begin_->elapsedTime(*end_) / 1e3;
  }

 private:
  using Clock = std::chrono::steady_clock;
  void mark(std::optional<c10::Event>& event, Clock::time_point& at) const {
    if (event)
      event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    else
      at = Clock::now();
  }

  at::Device device_;
  std::optional<c10::Event> begin_, end_;
  Clock::time_point from_, to_;
};

void add_memory(DeviceShare& share) {
  if (share.device.is_cpu()) return;
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(share.device.type()));
  if (allocator == nullptr || !allocator->initialized()) return;
  const c10::CachingDeviceAllocator::DeviceStats stats = allocator->getDeviceStats(share.device.index());
  const auto& all = stats.allocated_bytes[std::size_t(c10::CachingAllocator::StatType::AGGREGATE)];
  share.allocated_bytes = all.current;
  share.peak_allocated_bytes = all.peak;
}

/// A device's part of a call.
struct Part {
  std::vector<at::Tensor> outputs;
  std::optional<DeviceClock> clock;
  std::exception_ptr error;
};

void compute(Part& part, torch::nn::Module& module, const DeviceForward& forward, const std::vector<at::Tensor>& inputs,
             const at::Device& device) noexcept {
  try {
    const c10::DeviceGuard guard(device);
    if (part.clock) part.clock->begin();
    part.outputs = forward(module, inputs);
    if (part.clock) part.clock->end();
  } catch (...) {
    part.error = std::current_exception();
  }
}

void check_outputs(const std::vector<Part>& parts, const std::vector<at::Device>& devices) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    try {
      if (parts[i].error) std::rethrow_exception(parts[i].error);
    } catch (const std::exception& error) {
      throw Error(fmt::format("data_parallel: on {} (part {} of {}): {}", text_of(devices[i]), i + 1, parts.size(),
                              describe(error)));
    }
    if (parts[i].outputs.size() != parts[0].outputs.size())
      throw Error(fmt::format("data_parallel: {} tensors came from {}, and {} from {}", parts[i].outputs.size(),
                              text_of(devices[i]), parts[0].outputs.size(), text_of(devices[0])));
  }
}

/// One output of all parts. Those of no dimension become a vector.
at::Tensor gathered(const std::vector<Part>& parts, std::size_t which, const at::Device& device, std::int64_t dim) {
  std::vector<at::Tensor> all;
  bool are_scalars = false;
  for (const Part& part : parts) {
    at::Tensor here = part.outputs[which].to(device, /*non_blocking=*/true);
    are_scalars |= here.dim() == 0;
    all.push_back(here.dim() == 0 ? here.unsqueeze(0) : std::move(here));
  }
  return at::cat(all, are_scalars ? 0 : dim);
}

}  // namespace

std::vector<at::Tensor> forward_on_devices(const std::shared_ptr<torch::nn::Module>& module,
                                           const DeviceForward& forward, const std::vector<at::Tensor>& inputs,
                                           const DataParallelDevices& options, std::vector<DeviceShare>* shares) {
  std::vector<at::Device> devices = resolved(options);
  check_module(*module, devices[0]);
  const std::vector<std::vector<at::Tensor>> inputs_of = scattered(inputs, devices, options.dim);
  const std::vector<at::Device> used(devices.begin(), devices.begin() + std::ptrdiff_t(inputs_of.size()));
  const auto replicas = make_replicas(module, used);
  std::vector<Part> parts(used.size());
  if (shares)
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].clock.emplace(used[i]);
  {
    const at::ThreadLocalState state;
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < used.size(); ++i)
      threads.emplace_back([&, i] {
        const at::ThreadLocalStateGuard guard(state);  // whether gradients are recorded, autocast
        compute(parts[i], *replicas[i], forward, inputs_of[i], used[i]);
      });
    compute(parts[0], *replicas[0], forward, inputs_of[0], used[0]);
  }
  check_outputs(parts, used);
  const at::Device to = options.output_device.value_or(devices[0]);
  std::vector<at::Tensor> outputs;
  if (parts.size() == 1)
    for (const at::Tensor& output : parts[0].outputs) outputs.push_back(output.to(to));
  else
    for (std::size_t i = 0; i < parts[0].outputs.size(); ++i) outputs.push_back(gathered(parts, i, to, options.dim));
  if (!shares) return outputs;
  shares->clear();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    DeviceShare share{.device = devices[i]};
    if (i < parts.size()) {
      share.samples = inputs_of[i][0].size(options.dim);
      share.seconds = parts[i].clock->seconds();
    }
    add_memory(share);
    shares->push_back(share);
  }
  return outputs;
}

}  // namespace detail

std::string device_table(const std::vector<DeviceShare>& shares) {
  const auto mebibytes = [](const std::optional<std::int64_t>& bytes) {
    return bytes ? fmt::format("{:.1f}", double(*bytes) / (1 << 20)) : "";
  };
  std::string text = fmt::format("{:<8} {:>8} {:>11} {:>14} {:>9}\n", "device", "samples", "forward, ms",
                                 "allocated, MiB", "peak, MiB");
  for (const DeviceShare& share : shares)
    text += fmt::format("{:<8} {:>8} {:>11.3f} {:>14} {:>9}\n", share.device.str(), share.samples, 1e3 * share.seconds,
                        mebibytes(share.allocated_bytes), mebibytes(share.peak_allocated_bytes));
  return text;
}

}  // namespace shoal
