// A whole picture of a file as planes.
#pragma once

#include <shoal/internal/workers/beton/format/beton_view.h>

#include <cstdint>
#include <string>

namespace shoal::detail {

/// Into [3, height, width] bytes, of which libjpeg's or the file's rows are the source, each while it is in the cache. Memory of its
/// own is a row of each colour, which the thread keeps. Throws DatasetError, which begins with `name`, for a JPEG that cannot be
/// decoded.
void decode_picture_planes(const BetonImage& image, std::uint8_t* planes, const std::string& name);

}  // namespace shoal::detail
