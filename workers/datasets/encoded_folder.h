// Pictures in folders, one folder for each class, as their files have them: what a BetonWriter stores without decoding.
#pragma once

#include <shoal/workers/beton/beton_values.h>
#include <shoal/workers/datasets/image_folder.h>

#include <cstdint>
#include <filesystem>

namespace shoal {

/// A picture's file, and its class.
struct EncodedPicture {
  EncodedImage image;      ///< the file's bytes
  std::int64_t label = 0;  ///< the number of its class
};

/// An ImageFolder whose samples are the files' bytes. Plain data. Threads and processes: any.
struct EncodedFolder {
  ImageFolder folder;  ///< whose files they are

  std::int64_t size() const { return folder.size(); }  ///< pictures
  /// Reads the file. Throws DatasetError, which names it.
  EncodedPicture get(std::int64_t index) const;
};

/// Lists the files and reads none. Throws like image_folder().
EncodedFolder encoded_folder(const std::filesystem::path& root);

}  // namespace shoal
