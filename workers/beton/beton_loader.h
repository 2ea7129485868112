// BetonLoader: a loader over .beton files with FFCV's options, by their names.
#pragma once

#include <shoal/workers/beton/beton_dataset.h>
#include <shoal/workers/beton/beton_sampler.h>
#include <shoal/workers/data/data_loader.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
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
  /// Leaves out the last batch if it is smaller than the others. As FFCV's, and unlike DataLoaderOptions', by default.
  bool drop_last = true;
  int batches_ahead = 3;           ///< batches made ahead of the loop, by all workers together
  std::int64_t window_pages = 16;  ///< see BetonSamplerOptions
  DataLoaderOptions loader = {};   ///< all else: to_device, pin_memory, on_error, ...; what is named above counts
};

namespace detail {
/// What the ranks that were started together are told by. Throws std::invalid_argument for options that cannot be.
BetonSamplerOptions sampler_options(const BetonLoaderOptions& options);
DataLoaderOptions loader_options(const BetonLoaderOptions& options);
BetonDatasetOptions dataset_options(const BetonLoaderOptions& options);
}  // namespace detail

/// A DataLoader over .beton files:
///
///     shoal::BetonLoader loader("train.beton", {.batch_size = 64, .order = shoal::BetonOrder::quasi_random});
///     for (auto& batch : loader) use(batch["image"], batch["label"]);
///
/// All of DataLoader's members are there; its states go on with any number of ranks and workers.
template <class Sample = BetonSample>
class BetonLoader : public DataLoader<BetonDataset<Sample>> {
 public:
  /// Opens the file. Throws as beton_dataset() and DataLoader do.
  BetonLoader(const std::filesystem::path& path, const BetonLoaderOptions& options)
      : BetonLoader(beton_dataset<Sample>(path, detail::dataset_options(options)), options) {}
  /// Opens several files as one.
  BetonLoader(std::span<const std::filesystem::path> paths, const BetonLoaderOptions& options)
      : BetonLoader(beton_dataset<Sample>(paths, detail::dataset_options(options)), options) {}

 private:
  BetonLoader(BetonDataset<Sample> dataset, const BetonLoaderOptions& options)
      : BetonLoader(BetonSampler(detail::sampler_options(options), dataset.pages()), std::move(dataset), options) {}
  // A reference: the sampler before it is made of the data set, in any order of evaluation.
  BetonLoader(BetonSampler sampler, BetonDataset<Sample>&& dataset, const BetonLoaderOptions& options)
      : DataLoader<BetonDataset<Sample>>(detail::loader_options(options), std::move(dataset),
                                         AnySampler(std::move(sampler))) {}
};

BetonLoader(const std::filesystem::path&, const BetonLoaderOptions&) -> BetonLoader<>;

}  // namespace shoal
