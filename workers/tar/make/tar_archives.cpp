#include <shoal/internal/workers/tar/make/tar_archives.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/tar/format/tar_index.h>
#include <shoal/internal/workers/tar/format/tar_sample.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace shoal::detail {

struct MappedTars::State {
  explicit State(std::size_t archives) : files(archives) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    for (const auto& file : files) delete file.load(std::memory_order_relaxed);  // nobody else is left
  }
  std::vector<std::atomic<const MappedFile*>> files;
};

MappedTars::MappedTars(std::size_t archives) : state_(std::make_shared<State>(archives)) {}

std::size_t MappedTars::size() const { return state_ ? state_->files.size() : 0; }

const MappedFile& MappedTars::get(std::size_t archive, const std::string& path, const FileStamp& stamp) const {
  std::atomic<const MappedFile*>& place = state_->files[archive];
  // A1: pairs with R1, so that the mapping's members are there.
  if (const MappedFile* file = place.load(std::memory_order_acquire)) return *file;
  auto file = std::make_unique<const MappedFile>(path, "tar archive");
  if (file->stamp() != stamp)
    throw DatasetError(
        fmt::format("{}: has {} bytes and another time than when it was indexed, {} bytes; was it replaced?", path,
                    file->stamp().bytes, stamp.bytes));
  const MappedFile* none = nullptr;
  // R1; A2: as A1, of the thread that was quicker.
  if (place.compare_exchange_strong(none, file.get(), std::memory_order_acq_rel, std::memory_order_acquire))
    return *file.release();
  return *none;
}

std::int64_t TarArchives::size() const { return firsts.const_data_ptr<std::int64_t>()[count]; }

std::int64_t TarArchives::archive_of(std::int64_t sample) const {
  check_dataset_index(sample, size());
  const auto* first = firsts.const_data_ptr<std::int64_t>();
  return std::upper_bound(first, first + count + 1, sample) - first - 1;
}

std::span<const std::int64_t> TarArchives::places_of(std::int64_t archive) const {
  const auto* first = firsts.const_data_ptr<std::int64_t>();
  return {places.const_data_ptr<std::int64_t>() + first[archive] + archive,
          std::size_t(first[archive + 1] - first[archive] + 1)};
}

const MappedFile& TarArchives::map(std::int64_t archive) const {
  const auto* stamp = stamps.const_data_ptr<std::int64_t>() + 2 * archive;
  return mapped.get(std::size_t(archive), path(archive), {std::uint64_t(stamp[0]), stamp[1]});
}

TarParts TarArchives::sample(std::int64_t number) const {
  const std::int64_t archive = archive_of(number);
  const auto at = places_of(archive).subspan(std::size_t(number - firsts.const_data_ptr<std::int64_t>()[archive]));
  return read_tar_sample(map(archive).bytes(), path(archive), std::uint64_t(at[0]), std::uint64_t(at[1]));
}

std::uint64_t TarArchives::cut_at(std::int64_t number) const {
  const std::int64_t archive = archive_of(number);
  const auto bytes = stamps.const_data_ptr<std::int64_t>()[2 * archive];
  const bool is_last = number + 1 == firsts.const_data_ptr<std::int64_t>()[archive + 1];
  return is_last && places_of(archive).back() == bytes ? std::uint64_t(bytes) : 0;
}

std::string description_of(const TarArchives& archives) {
  // FNV-1a, over names without their folders, and numbers of samples.
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3;
  };
  const auto* first = archives.firsts.const_data_ptr<std::int64_t>();
  for (std::int64_t archive = 0; archive < archives.count; ++archive)
    add(fmt::format("{}:{}\n", std::filesystem::path(archives.path(archive)).filename().native(),
                    first[archive + 1] - first[archive]));
  return fmt::format("{} archives of {} samples, {:016x}", archives.count, archives.size(), hash);
}

TarArchives open_tars(std::span<const std::filesystem::path> paths, const std::filesystem::path& index_folder) {
  if (paths.empty()) throw std::invalid_argument("tar_dataset: no archives; give at least one");
  std::vector<std::string> names;
  std::vector<std::int64_t> places, firsts = {0}, stamps;
  for (const auto& path : paths) {
    names.push_back(path.native());
    const MappedFile archive(path.native(), "tar archive");
    const TarPlaces its = indexed_tar(archive, path.native(), index_folder);
    places.insert(places.end(), its.begin(), its.end());
    firsts.push_back(firsts.back() + std::int64_t(its.size()) - 1);
    stamps.insert(stamps.end(), {std::int64_t(archive.stamp().bytes), archive.stamp().modified});
  }
  const auto tensor = [](const std::vector<std::int64_t>& numbers) {
    at::Tensor result = at::empty({std::int64_t(numbers.size())}, at::TensorOptions(at::kLong));
    std::ranges::copy(numbers, result.mutable_data_ptr<std::int64_t>());
    return result;
  };
  return {StringTable::of(names),     tensor(places),          tensor(firsts), tensor(stamps),
          std::int64_t(paths.size()), MappedTars(paths.size())};
}

std::vector<std::int64_t> pages_of(const TarArchives& archives, std::uint64_t bytes) {
  constexpr auto kMost = std::uint64_t(std::numeric_limits<std::int64_t>::max());
  if (bytes < 1 || bytes > kMost)
    throw std::invalid_argument(fmt::format("TarDataset: pages of {} bytes; give 1 to {}", bytes, kMost));
  std::vector<std::int64_t> pages;
  pages.reserve(std::size_t(archives.size()));
  std::int64_t before = 0;
  for (std::int64_t archive = 0; archive < archives.count; ++archive) {
    const auto places = archives.places_of(archive);
    for (const std::int64_t place : places.first(places.size() - 1))
      pages.push_back(before + place / std::int64_t(bytes));
    before = pages.back() + 1;
  }
  return pages;
}

}  // namespace shoal::detail
