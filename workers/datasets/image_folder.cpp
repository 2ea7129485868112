#include <shoal/workers/datasets/image_folder.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace shoal {
namespace {

namespace fs = std::filesystem;

bool is_image(const fs::path& path) {
  constexpr std::array<std::string_view, 3> kExtensions = {".jpg", ".jpeg", ".png"};
  std::string extension = path.extension().native();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return std::ranges::find(kExtensions, extension) != kExtensions.end();
}

[[noreturn]] void fail(const fs::path& path, const std::error_code& error) {
  throw DatasetError(fmt::format("{}: can't be read: {}; if it is a link, restore what it leads to, or remove it",
                                 path.native(), error.message()));
}

/// Calls use(entry) for what is in the folder.
template <class Use>
void for_entries(const fs::path& folder, Use&& use) {
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    use(*entry);
  if (error) fail(folder, error);
}

/// A folder by device and inode, whatever its names are.
using FolderId = std::pair<dev_t, ino_t>;

FolderId id_of(const fs::path& folder) {
  struct stat status{};
  if (::stat(folder.c_str(), &status) != 0) fail(folder, {errno, std::generic_category()});
  return {status.st_dev, status.st_ino};
}

/// The pictures in and below a folder. `above`: the folders that it lies in.
void append_below(const fs::path& folder, std::vector<FolderId>& above, std::vector<fs::path>& found) {
  const FolderId id = id_of(folder);
  if (std::ranges::find(above, id) != above.end())
    throw DatasetError(fmt::format("{}: this folder lies in itself, by a link; remove the link", folder.native()));
  above.push_back(id);
  for_entries(folder, [&](const fs::directory_entry& entry) {
    std::error_code error;
    if (entry.is_directory(error)) return append_below(entry.path(), above, found);
    const bool is_picture = is_image(entry.path());
    if (error && (is_picture || error != std::errc::no_such_file_or_directory)) fail(entry.path(), error);
    if (is_picture && entry.is_regular_file(error)) found.push_back(entry.path());
  });
  above.pop_back();
}

// By folder, then by name: what sorting os.walk's folders and each one's files gives.
void append_images(const fs::path& folder, const FolderId& root, std::int64_t target, std::vector<ImageFile>& files) {
  std::vector<FolderId> above = {root};
  std::vector<fs::path> found;
  append_below(folder, above, found);
  if (found.empty()) {
    throw DatasetError(fmt::format("{}: no .jpg, .jpeg or .png file in this folder of a class", folder.native()));
  }
  std::ranges::sort(
      found, {}, [](const fs::path& path) { return std::pair(path.parent_path().native(), path.filename().native()); });
  for (fs::path& path : found) files.push_back({std::move(path), target});
}

}  // namespace

ImageFiles find_images(const fs::path& root) {
  std::error_code error;
  if (!fs::is_directory(root, error)) {
    if (error && error != std::errc::no_such_file_or_directory) fail(root, error);
    if (fs::exists(root, error))
      throw DatasetError(
          fmt::format("{}: this is a file; an image folder has a folder for each class: name the folder that has these",
                      root.native()));
    throw DatasetError(fmt::format("{}: no such folder; an image folder has a folder for each class", root.native()));
  }
  ImageFiles images;
  for_entries(root, [&](const fs::directory_entry& entry) {
    if (entry.is_directory(error)) images.classes.push_back(entry.path().filename().native());
    if (error && error != std::errc::no_such_file_or_directory) fail(entry.path(), error);
  });
  if (images.classes.empty()) {
    throw DatasetError(
        fmt::format("{}: no folder in this folder; an image folder has a folder for each class", root.native()));
  }
  std::ranges::sort(images.classes);
  const FolderId id = id_of(root);
  for (std::size_t i = 0; i < images.classes.size(); ++i) {
    append_images(root / images.classes[i], id, std::int64_t(i), images.files);
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
