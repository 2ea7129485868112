#include <shoal/workers/beton/beton_loader.h>

#include <fmt/format.h>
#include <shoal/internal/workers/beton/pipeline/batch_operations.h>
#include <shoal/internal/workers/beton/pipeline/field_plan.h>
#include <shoal/runtime/current_process.h>
#include <shoal/runtime/environment.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace shoal::detail {

BetonSamplerOptions sampler_options(const BetonLoaderOptions& options, std::span<const BetonFile> files,
                                    std::int64_t samples) {
  if (samples == 0)
    throw std::invalid_argument(
        fmt::format("BetonLoader: {}{}: {}", files.front().path(), files.size() > 1 ? " and others" : "",
                    options.filter ? "the filter takes none of the samples" : "there are no samples"));
  BetonSamplerOptions sampler{.order = options.order, .seed = options.seed, .window_pages = options.window_pages};
  if (!options.distributed) return sampler;
  const CurrentProcess& self = current_process();
  if (self.rank >= 0) {  // of spawn
    sampler.num_replicas = self.nprocs;
    sampler.rank = self.rank;
  } else {
    const Environment launched = environment();
    sampler.num_replicas = launched.world_size;
    sampler.rank = launched.rank;
  }
  return sampler;
}

std::optional<c10::Device> DecidedDevice::get() {
  if (process_ == ::getpid()) return device_;
  device_ = choice_.chosen();
  process_ = ::getpid();
  return device_;
}

LoopPart::LoopPart(const BetonPipelines& pipelines) {
  for (const auto& [name, pipeline] : pipelines) {
    const std::size_t begins = loop_begins(pipeline);
    if (begins == pipeline.size()) continue;
    for (std::size_t at = begins; at < pipeline.size(); ++at)
      if (!works_on_batches(pipeline[at]))
        throw std::invalid_argument(
            fmt::format("pipeline of {:?}: {} works on single samples, and so comes before ToDevice and ModuleWrapper",
                        name, name_of(pipeline[at])));
    Part part{name, {}, is_torch_image(pipeline, begins)};
    for (std::size_t at = begins; at < pipeline.size(); ++at) {
      const auto* to = std::get_if<ToDevice>(&pipeline[at]);
      part.steps.push_back({pipeline[at], to ? std::make_shared<DecidedDevice>(to->device) : nullptr});
    }
    parts_.push_back(std::move(part));
  }
}

std::optional<DeviceChoice> LoopPart::device_of_all(std::span<const BetonField> fields,
                                                    const BetonPipelines& pipelines) const {
  std::size_t outputs = fields.size();
  for (const auto& [name, pipeline] : pipelines) {
    const bool is_field = std::ranges::find(fields, name, &BetonField::name) != fields.end();
    if (pipeline.empty()) --outputs;
    if (source_of(pipeline) != nullptr && !is_field) ++outputs;
  }
  std::vector<std::shared_ptr<DecidedDevice>> devices;
  for (const Part& part : parts_)
    if (const auto& device = part.steps.front().device) devices.push_back(device);
  if (devices.empty() || devices.size() < outputs) return std::nullopt;
  return DeviceChoice([devices] {
    const auto device_of = [](DecidedDevice& decided) {
      const std::optional<c10::Device> device = decided.get();
      return device && !device->is_cpu() ? *device : c10::Device(at::kCPU);  // CPUs have no numbers
    };
    const c10::Device device = device_of(*devices.front());
    for (const auto& other : devices)
      if (device_of(*other) != device)
        throw std::invalid_argument(
            "BetonLoader: the pipelines' ToDevice name several devices; it is one for a loader");
    return device;
  });
}

void LoopPart::apply(BetonSample& batch) const {
  for (const Part& part : parts_) {
    BatchValue value{std::move(batch.at(part.name)), part.is_torch_image};
    for (const Step& step : part.steps) {
      if (!step.device)
        apply_to_batch(step.operation, value);
      else if (const auto device = step.device->get())
        value.tensor = value.tensor.to(*device);
    }
    batch.at(part.name) = std::move(value.tensor);
  }
}

DataLoaderOptions loader_options(const BetonLoaderOptions& options, const LoopPart& loop_part,
                                 std::span<const BetonField> fields, std::int64_t samples) {
  if (options.batches_ahead < 1)
    throw std::invalid_argument(
        fmt::format("BetonLoader: batches_ahead is {}; give at least 1", options.batches_ahead));
  const DataLoaderOptions usual;
  if (options.loader.prefetch_factor != usual.prefetch_factor)
    throw std::invalid_argument(fmt::format(
        "BetonLoader: loader.prefetch_factor is {}, and batches_ahead says how many batches are made ahead: {}",
        options.loader.prefetch_factor, options.batches_ahead));
  const auto check_own = [](const char* name, const auto& in_loader, const auto& as_usual, const auto& own) {
    if (in_loader == as_usual || in_loader == own) return;
    throw std::invalid_argument(
        fmt::format("BetonLoader: loader.{0} is {1}, and {0}, which counts, is {2}: set {0}", name, in_loader, own));
  };
  check_own("batch_size", options.loader.batch_size, usual.batch_size, options.batch_size);
  check_own("num_workers", options.loader.num_workers, usual.num_workers, options.num_workers);
  check_own("seed", options.loader.seed, usual.seed, options.seed);
  check_own("drop_last", options.loader.drop_last, usual.drop_last, options.drop_last);
  if (options.drop_last && samples < options.batch_size)
    throw std::invalid_argument(
        fmt::format("BetonLoader: batch_size is {}, and an epoch has {} samples{}: with drop_last = true, which is the "
                    "default here, there is no batch; give {}drop_last = false for a smaller batch",
                    options.batch_size, samples, options.distributed ? " of each rank" : "",
                    samples > 0 ? fmt::format("a batch_size of at most {}, or ", samples) : std::string()));
  DataLoaderOptions loader = options.loader;
  loader.batch_size = options.batch_size;
  loader.num_workers = options.num_workers;
  loader.seed = options.seed;
  loader.drop_last = options.drop_last;
  if (const auto device = loop_part.device_of_all(fields, options.pipelines)) {
    if (OptionFormat<DeviceChoice>::to_text(loader.to_device) != "none")
      throw std::invalid_argument(
          "BetonLoader: all pipelines have a ToDevice, and loader.to_device is set, too: leave loader.to_device out");
    loader.to_device = *device;
  }
  const int workers = std::max(1, options.num_workers);
  loader.prefetch_factor = (options.batches_ahead + workers - 1) / workers;  // of each worker
  return loader;
}

std::optional<ReadAhead> read_ahead(const BetonLoaderOptions& options, const BetonSampler& sampler,
                                    std::span<const BetonPlace> places) {
  if (options.os_cache && options.read_ahead_bytes == 0) return std::nullopt;
  if (!options.loader.in_order)
    throw std::invalid_argument(
        "BetonLoader: pages are read ahead in the sampler's order; not together with in_order = false");
  std::uint64_t bytes = options.read_ahead_bytes;
  if (bytes == 0 && !places.empty()) bytes = 2 * std::uint64_t(options.window_pages) * places[0].file->page_bytes();
  return ReadAhead({.bytes = bytes, .gives_back = !options.os_cache, .batch_size = options.batch_size}, sampler,
                   places);
}

BetonDatasetOptions dataset_options(const BetonLoaderOptions& options) {
  return {options.indices, options.filter, options.custom_fields, options.pipelines, options.os_cache};
}

}  // namespace shoal::detail
