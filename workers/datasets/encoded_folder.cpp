#include <shoal/workers/datasets/encoded_folder.h>

#include <shoal/internal/workers/images/formats/file_bytes.h>

#include <string>

namespace shoal {

EncodedPicture EncodedFolder::get(std::int64_t index) const {
  check_dataset_index(index, size());
  EncodedPicture picture{{{}, std::string(folder.paths[index])}, folder.targets.const_data_ptr<std::int64_t>()[index]};
  read_file(picture.image.name, picture.image.bytes);
  return picture;
}

EncodedFolder encoded_folder(const std::filesystem::path& root) { return {image_folder(root)}; }

}  // namespace shoal
