// BetonDataset: the samples of .beton files, for a DataLoader.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/beton/decode/decode_value.h>
#include <shoal/internal/workers/beton/pipeline/beton_plans.h>
#include <shoal/workers/beton/beton_file.h>
#include <shoal/workers/beton/beton_operations.h>
#include <shoal/workers/beton/member_names.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/data/named_tensors.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace shoal {

/// All fields of a sample, or of a batch, by their names.
using BetonSample = NamedTensors;

/// Which samples of its files a data set has.
struct BetonDatasetOptions {
  /// These alone, in this order, counted over all files. Empty: all.
  std::vector<std::int64_t> indices = {};
  /// Of those only the samples for which it is true: of a file, and a row in it. Asked once, when the data set is made.
  std::function<bool(const BetonFile& file, std::int64_t row)> filter = {};
  std::vector<BetonCustomCell> custom = {};  ///< what is known of custom fields
  /// What happens to the values of fields, up to ToDevice and ModuleWrapper, which a BetonLoader does. Of data sets of
  /// BetonSample.
  BetonPipelines pipelines = {};
  /// False: a sample's or a batch's pages are unmapped when it is made, so that a BetonLoader can give them back to the kernel.
  bool os_cache = true;
};

namespace detail {

template <class Sample>
Sample decode_sample(const BetonPlace& place) {
  Sample sample{};
  if constexpr (std::same_as<Sample, BetonSample>) {
    for (std::size_t f = 0; f < place.file->fields().size(); ++f)
      decode_member(place, f, sample[place.file->fields()[f].name]);
  } else {
    constexpr auto kNames = member_names<Sample>();
    auto members = members_of(sample);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto decode_one = [&]<class M>(std::string_view name, M& member) {
        const std::size_t field = place.file->field(name);
        if constexpr (std::integral<M>)
          member = M(decode_integer(place, field, std::is_signed_v<M> ? std::int64_t(std::numeric_limits<M>::min()) : 0,
                                    std::uint64_t(std::numeric_limits<M>::max())));
        else if constexpr (std::floating_point<M>)
          member = M(decode_real(place, field));
        else
          decode_member(place, field, member);
      };
      (decode_one(kNames[I], std::get<I>(members)), ...);
    }(std::make_index_sequence<kMembersOf<Sample>>());
  }
  return sample;
}

/// The global numbers of the samples that the options choose; nothing if these are all. Throws std::out_of_range.
std::optional<at::Tensor> chosen_samples(std::span<const BetonFile> files, const BetonDatasetOptions& options);
/// Opens the files. Throws std::invalid_argument for none, or if one lacks a field of the first one.
std::vector<BetonFile> open_betons(std::span<const std::filesystem::path> paths, const BetonDatasetOptions& options);
/// Throws std::invalid_argument if two fields have one name: samples by name would lose one of them.
void check_names(const BetonFile& file);
/// The page of each sample, numbered over all files; samples without one share a number.
std::vector<std::int64_t> pages_of(std::span<const BetonPlace> places);
/// The pipelines, whose ReplaceLabel and Poison name samples by their numbers over all files, with these samples' places
/// in `chosen` instead: one that is not there is left out, one that is there twice is named twice.
BetonPipelines with_places(BetonPipelines pipelines, const at::Tensor& chosen);
/// Takes the pages of these samples out of this process's mappings.
void drop_pages(std::span<const BetonPlace> places);

}  // namespace detail

/// The samples of one .beton file, or of several one after the other. `Sample` is BetonSample, or an aggregate whose
/// members have the names of fields (at most 16 characters of them count): numbers, std::string, BetonJson,
/// std::vector<std::uint8_t>, or at::Tensor, which takes any field. Pictures are uint8 [3, height, width], as everywhere
/// in shoal, so its transforms apply.
///
/// Made by beton_dataset(). It crosses as the files' paths, and each process maps them itself. Threads: any.
template <class Sample = BetonSample>
struct BetonDataset {
  std::vector<BetonFile> files;      ///< in the order of their samples
  std::optional<at::Tensor> chosen;  ///< int64 [n]: numbers over all files; nothing: all samples
  detail::BetonPlans plans = {};     ///< of the pipelines
  bool keeps_pages = true;           ///< BetonDatasetOptions::os_cache

  std::int64_t size() const { return chosen ? chosen->size(0) : all(); }  ///< samples

  /// Throws std::out_of_range, and DatasetError for a damaged file.
  Sample get(std::int64_t index) const {
    if constexpr (std::same_as<Sample, BetonSample>)
      if (!plans.empty()) return sample_of(get_batch(std::span(&index, 1)));
    const detail::BetonPlace at = place(index);
    Sample sample = detail::decode_sample<Sample>(at);
    if (!keeps_pages) detail::drop_pages(std::span(&at, 1));
    return sample;
  }

  /// Each value is written straight into its row of the batch, by the field's pipeline if it has one.
  BetonSample get_batch(std::span<const std::int64_t> indices) const
    requires std::same_as<Sample, BetonSample>
  {
    std::vector<detail::BetonPlace> places;
    places.reserve(indices.size());
    for (const std::int64_t index : indices) places.push_back(place(index));
    BetonSample batch = plans.empty() ? detail::decode_batch(places) : plans.make(places, indices);
    if (!keeps_pages) detail::drop_pages(places);
    return batch;
  }

  /// The page of each sample: what BetonSampler's quasi-random order follows from.
  std::vector<std::int64_t> pages() const { return detail::pages_of(places()); }

  /// Where all samples are.
  std::vector<detail::BetonPlace> places() const {
    std::vector<detail::BetonPlace> places;
    places.reserve(std::size_t(size()));
    for (std::int64_t index = 0; index < size(); ++index) places.push_back(place(index));
    return places;
  }

  /// Where a sample is.
  detail::BetonPlace place(std::int64_t index) const {
    check_dataset_index(index, size());
    std::int64_t row = chosen ? chosen->template const_data_ptr<std::int64_t>()[index] : index;
    std::size_t file = 0;
    for (; row >= files[file].size(); ++file) row -= files[file].size();
    return {&files[file], row};
  }

 private:
  static BetonSample sample_of(BetonSample batch) {
    for (auto& [name, values] : batch) values = values.select(0, 0);
    return batch;
  }
  std::int64_t all() const {
    std::int64_t samples = 0;
    for (const BetonFile& file : files) samples += file.size();
    return samples;
  }
};

/// Opens .beton files as one data set. Throws DatasetError for a file that cannot be read, std::out_of_range for an index
/// that is not there, std::invalid_argument for samples by name of a file in which two fields have one name.
template <class Sample = BetonSample>
BetonDataset<Sample> beton_dataset(std::span<const std::filesystem::path> paths,
                                   const BetonDatasetOptions& options = {}) {
  BetonDataset<Sample> dataset{detail::open_betons(paths, options), {}};
  if constexpr (std::same_as<Sample, BetonSample>) detail::check_names(dataset.files[0]);
  dataset.chosen = detail::chosen_samples(dataset.files, options);
  dataset.keeps_pages = options.os_cache;
  if (options.pipelines.empty()) return dataset;
  if constexpr (!std::same_as<Sample, BetonSample>)
    throw std::invalid_argument("beton_dataset: pipelines are for samples by name, BetonSample");
  dataset.plans =
      detail::BetonPlans(dataset.chosen ? detail::with_places(options.pipelines, *dataset.chosen) : options.pipelines);
  dataset.plans.plan(dataset.files[0]);
  return dataset;
}
/// Opens one .beton file.
template <class Sample = BetonSample>
BetonDataset<Sample> beton_dataset(const std::filesystem::path& path, const BetonDatasetOptions& options = {}) {
  return beton_dataset<Sample>(std::span(&path, 1), options);
}

}  // namespace shoal
