// BetonLoader: a loader over .beton files with FFCV's options, by their names.
#pragma once

#include <shoal/internal/workers/beton/order/read_ahead.h>
#include <shoal/runtime/option_text.h>
#include <shoal/workers/beton/beton_dataset.h>
#include <shoal/workers/beton/beton_sampler.h>
#include <shoal/workers/data/data_loader.h>
#include <sys/types.h>

#include <concepts>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// The options of FFCV's Loader, and `loader` for all that FFCV has none for.
struct BetonLoaderOptions {
  std::int64_t batch_size = 1;                ///< samples in a batch
  int num_workers = 0;                        ///< worker processes
  BetonOrder order = BetonOrder::sequential;  ///< of an epoch
  /// Each rank has its share: of those that a launcher or spawn started together. Every order is distributed.
  bool distributed = false;
  std::uint64_t seed = 0;  ///< of the order and of what is random in samples; the same in all ranks
  /// These samples alone.
  std::vector<std::int64_t> indices = {};
  std::function<bool(const BetonFile& file, std::int64_t row)> filter = {};  ///< see BetonDatasetOptions
  std::vector<BetonCustomCell> custom_fields = {};                           ///< what is known of custom fields
  /// What happens to the values of fields, by their names; fields without a pipeline come as they are, those with an empty
  /// one do not. See BetonOperation.
  BetonPipelines pipelines = {};
  /// Leaves out the last batch if it is smaller than the others. As FFCV's, and unlike DataLoaderOptions', by default. A
  /// batch_size by which there is no batch then is refused.
  bool drop_last = true;
  int batches_ahead = 3;           ///< made ahead of the loop, by all workers together; at least one each
  std::int64_t window_pages = 16;  ///< see BetonSamplerOptions
  /// False: pages that the loop has passed are given back to the kernel, and those of two windows are read ahead unless
  /// read_ahead_bytes says otherwise: for files that memory does not hold.
  bool os_cache = true;
  /// The kernel is asked to read the pages of the next samples before the loop needs them, as many as have so many bytes.
  /// 0: none.
  std::uint64_t read_ahead_bytes = 0;
  DataLoaderOptions loader =
      {};  ///< all else: to_device, pin_memory, on_error, ...; what is named above is refused here

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"batch_size", "samples in a batch", {.least = 1}},
      {"num_workers", "worker processes", {.least = 0}},
      {"order", "of an epoch"},
      {"distributed", "each rank has its share"},
      {"seed", "of the order and of what is random in samples"},
      {"indices", "these samples alone; none: all", {.least = 0}},
      {"pipelines", "what happens to the values of fields, by their names"},
      {"drop_last", "leaves out the last batch if it is smaller"},
      {"batches_ahead", "made ahead of the loop, by all workers together; at least one each", {.least = 1}},
      {"window_pages", "with quasi_random: pages whose samples are mixed", {.least = 1}},
      {"os_cache", "the kernel keeps the file's pages"},
      {"read_ahead_bytes", "that the kernel is asked to read ahead; 0: none", {.unit = "bytes"}},
      {"loader", "all else of a DataLoader"},
  };
};

namespace detail {
/// What the ranks that were started together are told by, for an order of `samples`, those that the options choose of the
/// files'. Throws std::invalid_argument for options that cannot be, and for no samples.
BetonSamplerOptions sampler_options(const BetonLoaderOptions& options, std::span<const BetonFile> files,
                                    std::int64_t samples);
BetonDatasetOptions dataset_options(const BetonLoaderOptions& options);
/// Nothing if pages are neither read ahead nor given back. Throws std::invalid_argument for options that cannot be.
std::optional<ReadAhead> read_ahead(const BetonLoaderOptions& options, const BetonSampler& sampler,
                                    std::span<const BetonPlace> places);

/// What a ToDevice has decided. One thread.
class DecidedDevice {
 public:
  explicit DecidedDevice(DeviceChoice choice) : choice_(std::move(choice)) {}
  /// Decides at the first call in each process. Nothing: batches stay where they are.
  std::optional<c10::Device> get();

 private:
  DeviceChoice choice_;
  std::optional<c10::Device> device_;
  pid_t process_ = -1;  // in which that was decided
};

/// What pipelines do in the process that loops: ToDevice, ModuleWrapper, and what follows them. One thread. Copies decide
/// about devices together.
class LoopPart {
 public:
  explicit LoopPart(const BetonPipelines& pipelines);
  bool empty() const { return parts_.empty(); }
  /// If each of these fields goes to a device first of all: the device of all, found when the loop begins. Then the
  /// loader copies ahead of the loop, and this does the rest.
  std::optional<DeviceChoice> device_of_all(std::span<const BetonField> fields, const BetonPipelines& pipelines) const;
  void apply(BetonSample& batch) const;

 private:
  struct Step {
    BetonOperation operation;
    std::shared_ptr<DecidedDevice> device;  // of a ToDevice
  };
  struct Part {
    std::string name;
    std::vector<Step> steps;
    bool is_torch_image;
  };
  std::vector<Part> parts_;
};

/// `samples`: of an epoch, of this rank. Throws std::invalid_argument for options that cannot be, or by which there is no
/// batch.
DataLoaderOptions loader_options(const BetonLoaderOptions& options, const LoopPart& loop_part,
                                 std::span<const BetonField> fields, std::int64_t samples);
}  // namespace detail

/// A DataLoader over .beton files:
///
///     shoal::BetonLoader loader("train.beton", {.batch_size = 64, .order = shoal::BetonOrder::quasi_random, .pipelines = {
///         {"image", {RandomResizedCropRGBImageDecoder{{224}}, RandomHorizontalFlip{}, NormalizeImage{mean, std},
///                    ToTorchImage{}, ToDevice{[] { return at::Device(at::kCUDA, local_rank()); }}}},
///         {"label", {IntDecoder{}, Squeeze{}, ToDevice{...}}}}});
///     for (auto& batch : loader) use(batch["image"], batch["label"]);
///
/// All of DataLoader's members are there; its states go on with any number of ranks and workers. Pipelines run in the
/// workers up to ToDevice or ModuleWrapper; what follows runs in the loop: profile() counts it as the step's, and a batch
/// for which it throws has failed. If all fields go to a device, that is one device, to which the loader copies ahead of
/// the loop. A ToDevice's function is called once in each process that loops, when its first loop begins, or for its first
/// batch.
template <class Sample = BetonSample>
class BetonLoader : public DataLoader<BetonDataset<Sample>> {
  using Base = DataLoader<BetonDataset<Sample>>;

 public:
  /// Opens the file. Throws as beton_dataset() and DataLoader do.
  BetonLoader(const std::filesystem::path& path, const BetonLoaderOptions& options)
      : BetonLoader(beton_dataset<Sample>(path, detail::dataset_options(options)), options) {}
  /// Opens several files as one.
  BetonLoader(std::span<const std::filesystem::path> paths, const BetonLoaderOptions& options)
      : BetonLoader(beton_dataset<Sample>(paths, detail::dataset_options(options)), options) {}

  /// Begins an epoch: DataLoader::begin().
  typename Base::Iterator begin() {
    if (ahead_) {
      const LoaderState from = this->next_begin();
      ahead_->begin(from.order_epoch < 0 ? from.epoch : from.order_epoch, from.place);
    }
    began_at_ = this->batches_done_at_begin();
    return Base::begin();
  }

  /// An epoch's batches without those that fail: DataLoader::continuing().
  template <std::invocable<const std::exception&> OnFailure>
  Continuing<BetonLoader, OnFailure> continuing(OnFailure on_failure) {
    return {*this, std::move(on_failure)};
  }

 private:
  BetonLoader(BetonDataset<Sample> dataset, const BetonLoaderOptions& options)
      : BetonLoader(BetonSampler(detail::sampler_options(options, dataset.files, dataset.size()), dataset.pages()),
                    std::move(dataset), options) {}
  // References: sampler and options are made of the data set before that is moved, in any order of evaluation.
  BetonLoader(const BetonSampler& sampler, BetonDataset<Sample>&& dataset, const BetonLoaderOptions& options)
      : BetonLoader(detail::LoopPart(options.pipelines), sampler, std::move(dataset), options) {}
  BetonLoader(const detail::LoopPart& loop_part, const BetonSampler& sampler, BetonDataset<Sample>&& dataset,
              const BetonLoaderOptions& options)
      : BetonLoader(detail::loader_options(options, loop_part, dataset.files[0].fields(), sampler.size()), loop_part,
                    sampler, std::move(dataset), options) {}
  BetonLoader(const DataLoaderOptions& base_options, const detail::LoopPart& loop_part, const BetonSampler& sampler,
              BetonDataset<Sample>&& dataset, const BetonLoaderOptions& options)
      : Base(base_options, std::move(dataset), AnySampler(sampler)),
        loop_part_(loop_part),
        ahead_(detail::read_ahead(options, sampler, this->dataset().places())) {
    this->finish_batch_ = [this](typename Base::Batch& batch) { finish(batch); };
  }

  void finish(typename Base::Batch& batch) {
    if (ahead_) ahead_->at_batch(this->batches_done() - began_at_ - 1);
    if constexpr (std::same_as<Sample, BetonSample>) loop_part_.apply(batch);
  }

  detail::LoopPart loop_part_;
  std::optional<detail::ReadAhead> ahead_;
  std::int64_t began_at_ = 0;  // batches that were done when ahead_ began
};

BetonLoader(const std::filesystem::path&, const BetonLoaderOptions&) -> BetonLoader<>;

}  // namespace shoal
