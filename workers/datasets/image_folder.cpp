#include <shoal/workers/datasets/image_folder.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace shoal {
namespace {

namespace fs = std::filesystem;

bool is_image(const fs::path& path) {
  constexpr std::array<std::string_view, 3> kExtensions = {".jpg", ".jpeg", ".png"};
  std::string extension = path.extension().native();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return std::ranges::find(kExtensions, extension) != kExtensions.end();
}

// By folder, then by name: what sorting os.walk's folders and each one's files gives.
void append_images(const fs::path& folder, std::int64_t target, std::vector<ImageFile>& files) {
  std::vector<fs::path> found;
  std::error_code error;
  auto entries = fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    if (is_image(entries->path()) && entries->is_regular_file()) found.push_back(entries->path());
  }
  if (error) throw DatasetError(fmt::format("{}: can't be listed: {}", folder.native(), error.message()));
  if (found.empty()) {
    throw DatasetError(fmt::format("{}: no .jpg, .jpeg or .png file in this folder of a class", folder.native()));
  }
  std::ranges::sort(
      found, {}, [](const fs::path& path) { return std::pair(path.parent_path().native(), path.filename().native()); });
  for (fs::path& path : found) files.push_back({std::move(path), target});
}

}  // namespace

ImageFiles find_images(const fs::path& root) {
  if (!fs::is_directory(root)) {
    throw DatasetError(fmt::format("{}: no such folder; an image folder has a folder for each class", root.native()));
  }
  ImageFiles images;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) images.classes.push_back(entry.path().filename().native());
  }
  if (images.classes.empty()) {
    throw DatasetError(
        fmt::format("{}: no folder in this folder; an image folder has a folder for each class", root.native()));
  }
  std::ranges::sort(images.classes);
  for (std::size_t i = 0; i < images.classes.size(); ++i) {
    append_images(root / images.classes[i], std::int64_t(i), images.files);
  }
  return images;
}

ImageFolder image_folder(const fs::path& root, const DecodeOptions& decode) {
  ImageFiles images = find_images(root);
  std::vector<std::string> paths;
  paths.reserve(images.files.size());
  ImageFolder folder;
  folder.targets = at::empty({std::int64_t(images.files.size())}, at::TensorOptions(at::kLong));
  auto* target = folder.targets.mutable_data_ptr<std::int64_t>();
  for (const ImageFile& file : images.files) {
    paths.push_back(file.path.native());
    *target++ = file.target;
  }
  folder.paths = StringTable::of(paths);
  folder.classes = std::move(images.classes);
  folder.decode = decode;
  return folder;
}

Example ImageFolder::get(std::int64_t index) const {
  check_dataset_index(index, size());
  try {
    return {read_image(paths[index], decode), targets.select(0, index).clone()};
  } catch (const DatasetError& error) {
    throw DatasetError(fmt::format("sample {}: {}", index, error.what()));
  }
}

}  // namespace shoal
