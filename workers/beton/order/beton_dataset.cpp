#include <shoal/workers/beton/beton_dataset.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <variant>

namespace shoal::detail {

std::vector<BetonFile> open_betons(std::span<const std::filesystem::path> paths, const BetonDatasetOptions& options) {
  if (paths.empty()) throw std::invalid_argument("beton_dataset: no files; give at least one");
  std::vector<BetonFile> files;
  for (const auto& path : paths) {
    files.emplace_back(path, options.custom);
    const auto fields = files.back().fields(), first = files.front().fields();
    const bool is_alike = std::ranges::equal(fields, first, [](const BetonField& a, const BetonField& b) {
      return a.name == b.name && a.type == b.type && a.shape == b.shape && a.dtype == b.dtype;
    });
    if (!is_alike)
      throw std::invalid_argument(fmt::format("beton_dataset: {} has other fields than {}: several files need the same",
                                              files.back().path(), files.front().path()));
  }
  return files;
}

void check_names(const BetonFile& file) {
  const auto fields = file.fields();
  for (auto at = fields.begin(); at != fields.end(); ++at)
    if (std::ranges::find(fields.begin(), at, at->name, &BetonField::name) != at)
      throw std::invalid_argument(
          fmt::format("beton_dataset: {}: two fields are named {:?}, and samples by name would lose one: take a Sample "
                      "of your own without it, or BetonFile, which reads fields by number",
                      file.path(), at->name));
}

std::optional<at::Tensor> chosen_samples(std::span<const BetonFile> files, const BetonDatasetOptions& options) {
  if (options.indices.empty() && !options.filter) return std::nullopt;
  std::int64_t all = 0;
  for (const BetonFile& file : files) all += file.size();
  std::vector<std::int64_t> chosen = options.indices;
  for (std::int64_t index = 0; chosen.size() < std::size_t(all) && options.indices.empty() && index < all; ++index)
    chosen.push_back(index);
  for (const std::int64_t index : chosen) check_dataset_index(index, all);
  const auto is_left_out = [&](std::int64_t row) {
    std::size_t file = 0;
    for (; row >= files[file].size(); ++file) row -= files[file].size();
    return !options.filter(files[file], row);
  };
  if (options.filter) std::erase_if(chosen, is_left_out);
  at::Tensor rows = at::empty({std::int64_t(chosen.size())}, at::TensorOptions(at::kLong));
  std::ranges::copy(chosen, rows.mutable_data_ptr<std::int64_t>());
  return rows;
}

BetonPipelines with_places(BetonPipelines pipelines, const at::Tensor& chosen) {
  std::unordered_multimap<std::int64_t, std::int64_t> places;
  const auto* const numbers = chosen.const_data_ptr<std::int64_t>();
  for (std::int64_t place = 0; place < chosen.numel(); ++place) places.emplace(numbers[place], place);
  const auto translate = [&](std::vector<std::int64_t>& indices) {
    std::vector<std::int64_t> found;
    for (const std::int64_t index : indices) {
      const auto [begin, end] = places.equal_range(index);
      for (auto at = begin; at != end; ++at) found.push_back(at->second);
    }
    indices = std::move(found);
  };
  for (auto& [name, pipeline] : pipelines)
    for (BetonOperation& operation : pipeline) {
      if (auto* replace = std::get_if<ReplaceLabel>(&operation)) translate(replace->indices);
      if (auto* poison = std::get_if<Poison>(&operation)) translate(poison->indices);
    }
  return pipelines;
}

std::vector<std::int64_t> pages_of(std::span<const BetonPlace> places) {
  // Files have their pages one after the other.
  std::map<const BetonFile*, std::int64_t> first_page;
  std::int64_t pages = 0;
  std::vector<std::int64_t> result;
  result.reserve(places.size());
  for (const BetonPlace& place : places) {
    const auto [known, is_new] = first_page.try_emplace(place.file, pages);
    if (is_new) pages += std::int64_t(place.file->file_bytes() / place.file->page_bytes()) + 1;
    const auto page = place.file->page(place.row);
    result.push_back(page ? known->second + std::int64_t(*page) : -1);
  }
  return result;
}

void drop_pages(std::span<const BetonPlace> places) {
  const BetonFile* file = nullptr;
  std::uint64_t dropped = 0;
  for (const BetonPlace& place : places) {
    const auto page = place.file->page(place.row);
    if (!page || (place.file == file && *page == dropped)) continue;
    file = place.file;
    dropped = *page;
    file->drop_page(dropped);
  }
}

}  // namespace shoal::detail
