#include <shoal/workers/datasets/ram_dataset.h>

#include <fmt/format.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/transforms/compose.h>
#include <shoal/workers/transforms/resize.h>

namespace shoal {
namespace {

RamDataset load(ImageFiles images, const RamDatasetOptions& options) {
  std::vector<std::filesystem::path> paths;
  paths.reserve(images.files.size());
  for (const ImageFile& file : images.files) paths.push_back(file.path);
  RamDataset dataset;
  dataset.files = load_ram_files(paths, options.reading);
  dataset.targets = empty_shared({std::int64_t(paths.size())}, at::TensorOptions(at::kLong));
  auto* target = dataset.targets.mutable_data_ptr<std::int64_t>();
  for (const ImageFile& file : images.files) *target++ = file.target;
  dataset.classes = std::move(images.classes);
  dataset.decode = options.decode;
  if (options.cache != ImageSize{}) {
    const ImageSize size = detail::crop_size("ram_dataset's cache", options.cache);
    dataset.cache = DecodedCache::of(dataset.size(), {3, size.height, size.width});
  }
  return dataset;
}

}  // namespace

RamDataset ram_dataset(const std::filesystem::path& root, const RamDatasetOptions& options) {
  return load(find_images(root), options);
}

RamDataset ram_dataset(const std::vector<std::filesystem::path>& files, const RamDatasetOptions& options) {
  ImageFiles images{{""}, {}};
  for (const std::filesystem::path& file : files) images.files.push_back({file, 0});
  return load(std::move(images), options);
}

Example RamDataset::get(std::int64_t index) const {
  check_dataset_index(index, size());
  // Copies, both: what a loop does to its samples is not to be in the next epoch's.
  const at::Tensor target = targets.select(0, index).clone();
  if (cache) {
    if (auto kept = cache->find(index)) return {kept->clone(), target};
  }
  at::Tensor picture;
  try {
    picture = decode_image(files.file(index), std::string(files.names[index]), decode);
  } catch (const DatasetError& error) {
    throw DatasetError(fmt::format("sample {}: {}", index, error.what()));
  }
  if (cache) {
    picture = transform_image(Resize{.size = {cache->pictures.size(2), cache->pictures.size(3)}}, picture, {});
    cache->keep(index, picture);
  }
  return {picture, target};
}

}  // namespace shoal
