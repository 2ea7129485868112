// How pictures and other values are stored in a .beton file.
#pragma once

#include <shoal/workers/beton/beton_field.h>

#include <cstdint>
#include <optional>

namespace shoal {

/// Which pictures are stored as JPEGs: FFCV's write modes.
enum class BetonWriteMode : std::uint8_t {
  raw,        ///< none
  jpg,        ///< all
  smart,      ///< those of more bytes than smart_threshold
  proportion  ///< each with a probability, drawn by seed and index
};

/// How pictures are stored. By FFCV's names.
struct BetonImageOptions {
  BetonWriteMode write_mode = BetonWriteMode::raw;  ///< which are JPEGs
  /// The longer side, in pixels, to which larger pictures are made smaller, by averaging areas. 0: as they are.
  std::int64_t max_resolution = 0;
  /// With smart: bytes of raw pixels above which a picture is stored as a JPEG. 0: all are raw, as with FFCV.
  std::uint64_t smart_threshold = 0;
  int jpeg_quality = 90;              ///< 1 to 100
  double compress_probability = 0.5;  ///< with proportion
  bool verbatim = true;               ///< JPEGs that need not be made smaller are stored as their files have them
};

/// What one field is to be.
struct BetonFieldOptions {
  /// In place of what the sample's member says: ndarray for tensor (or the other way round, also of a uint8 [3, h, w]),
  /// json for bytes.
  std::optional<BetonType> type = {};
  std::optional<BetonImageOptions> images = {};  ///< in place of those of all pictures
};

}  // namespace shoal
