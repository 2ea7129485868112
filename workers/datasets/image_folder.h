// Pictures in folders, one folder for each class.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/datasets/parts/string_table.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/images/decode.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace shoal {

/// torchvision's ImageFolder: root/dog/1.jpg, root/dog/more/2.png, root/cat/3.jpg, with classes numbered in the order
/// of their names. An example is {data: uint8 [3, height, width] in RGB, target: int64 []}. The sizes differ as the
/// files' do, so put a transform that makes them equal between this and a loader. Plain data; workers share its tables.
/// Made by image_folder(). Threads and processes: any.
struct ImageFolder {
  StringTable paths;                 ///< of all files, with the root in front
  at::Tensor targets;                ///< int64 [n]
  std::vector<std::string> classes;  ///< names of the folders; a target is an index into them
  DecodeOptions decode;              ///< how files become pictures

  std::int64_t size() const { return targets.size(0); }  ///< pictures
  /// Reads and decodes the file. Throws DatasetError, which names the file and its index.
  Example get(std::int64_t index) const;
};

/// A file of an image folder.
struct ImageFile {
  std::filesystem::path path;  ///< with the root in front
  std::int64_t target;         ///< number of its class
};
/// What is below the root of an image folder.
struct ImageFiles {
  std::vector<std::string> classes;  ///< in the order of their numbers
  std::vector<ImageFile> files;      ///< in the order of the data set
};

/// Finds the .jpg, .jpeg and .png files (in any case) below each folder in `root`, in torchvision's order: by class,
/// folder, name. Follows links. Throws DatasetError if root is no folder or has no folders, a class has no pictures, a
/// link to a picture leads nowhere, or a folder lies in itself.
ImageFiles find_images(const std::filesystem::path& root);

/// Lists the files and reads none. Throws like find_images().
ImageFolder image_folder(const std::filesystem::path& root, const DecodeOptions& decode = {});

}  // namespace shoal
