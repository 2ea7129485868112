// BetonWriter: any data set into a .beton file, encoded by worker processes.
#pragma once

#include <shoal/internal/workers/beton/make/encode_sample.h>
#include <shoal/internal/workers/beton/make/write_progress.h>
#include <shoal/internal/workers/beton/make/writer_workers.h>
#include <shoal/internal/workers/beton/write/file_writer.h>
#include <shoal/runtime/options.h>
#include <shoal/workers/beton/beton_field.h>
#include <shoal/workers/beton/beton_image_options.h>
#include <shoal/workers/beton/beton_values.h>
#include <shoal/workers/beton/member_names.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/datasets/sample_write_failed.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// How a data set is written.
struct BetonWriterOptions {
  std::uint64_t page_bytes = 8U << 20U;  ///< a power of two from 2 MiB to 2 GiB; a sample has to fit
  /// Worker processes. 0: the calling process encodes by itself. The file is the same with any number.
  int num_workers = 0;
  /// Samples that a worker encodes at a time; fewer where so many have more than about 8 MiB.
  std::int64_t chunk_size = 100;
  /// The fields' names, for samples that are pairs, tuples, arrays or one tensor. Empty: field0, field1, ...
  std::vector<std::string> names = {};
  BetonImageOptions images = {};                         ///< of all pictures
  std::map<std::string, BetonFieldOptions> fields = {};  ///< of one field, by its whole name
  std::uint64_t seed = 0;                                ///< of `proportion`
  bool progress = false;                                 ///< a bar on stderr with rate and bytes
  StartMethod start_method = get_start_method();         ///< of the workers
  bool fork_despite_threads = false;                     ///< see SpawnOptions
};

/// A sample could not be written. There is no file.
class BetonWriteFailed : public SampleWriteFailed {
 public:
  using SampleWriteFailed::SampleWriteFailed;
};

/// Writes data sets as .beton files, which FFCV reads, too.
///
/// A sample's members become fields. A plain aggregate names them by itself; of other samples the options do.
///
///   integers, enums, bool                       int
///   float, double                               float
///   std::string, std::vector<std::uint8_t>      bytes
///   BetonJson                                   json
///   EncodedImage                                rgb_image
///   at::Tensor: uint8 [3, height, width]        rgb_image
///               of no dimensions                int or float
///               others                          tensor; shape and type are those of the first sample
///
/// The file is written beside its place, and renamed when it is whole and on disk. Belongs to one thread.
class BetonWriter {
 public:
  /// Writes nothing yet. Throws std::invalid_argument for options that cannot be.
  explicit BetonWriter(std::filesystem::path path, BetonWriterOptions options = {})
      : path_(std::move(path)), options_(std::move(options)) {
    detail::check(options_.page_bytes, options_.num_workers, options_.chunk_size);
  }

  /// Writes the whole data set. Throws BetonWriteFailed with the index of the sample at fault, DatasetError if the file
  /// cannot be written, PoolStopped if workers cannot start, std::invalid_argument for an empty data set and for samples
  /// that no fields can be made of.
  template <MapDataset D>
  void write(D dataset) {
    const std::int64_t size = dataset_size(dataset);
    std::vector<std::int64_t> all(static_cast<std::size_t>(size > 0 ? size : 0));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::int64_t(i);
    write(std::move(dataset), all);
  }
  /// Writes these samples, in this order.
  template <MapDataset D>
  void write(D dataset, std::span<const std::int64_t> indices) {
    if (indices.empty())
      throw std::invalid_argument(
          "BetonWriter: a data set without samples; FFCV's format needs one to know its fields");
    std::optional<SampleOf<D>> first;
    try {
      first.emplace(dataset.get(indices[0]));
    } catch (...) {
      fail(indices[0]);
    }
    const detail::SampleEncoder encoder(detail::field_names<SampleOf<D>>(options_.names), detail::values_of(*first),
                                        {options_.images, options_.fields, options_.seed});
    detail::BetonFileWriter file(path_, encoder.fields(), options_.page_bytes, std::int64_t(indices.size()));
    detail::WriteProgress progress(options_.progress, std::int64_t(indices.size()), path_);
    const auto add = [&](std::span<const std::uint8_t> samples) {
      try {
        file.append(samples);
      } catch (const detail::LargerThanPage&) {
        fail(indices[std::size_t(file.rows())]);
      }
      progress.show(file.rows(), file.bytes());
    };
    detail::encode_samples(std::move(dataset), encoder, indices,
                           {.processes = options_.num_workers,
                            .start_method = options_.start_method,
                            .name = "beton writer",
                            .fork_despite_threads = options_.fork_despite_threads},
                           options_.chunk_size, add, [this](std::int64_t index) { fail(index); });
    file.finish();
    progress.finish();
  }

 private:
  /// Called where an exception is being handled.
  [[noreturn]] void fail(std::int64_t index) const {
    std::throw_with_nested(BetonWriteFailed(detail::failure_text(path_, index, std::current_exception()), index));
  }

  std::filesystem::path path_;
  BetonWriterOptions options_;
};

}  // namespace shoal
