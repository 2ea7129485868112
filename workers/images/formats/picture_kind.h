// Which format a picture's file has.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace shoal {

enum class PictureKind { jpeg, png };

/// By its first bytes, whatever it is called. Throws DatasetError, which names it, for what is neither.
PictureKind picture_kind(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace shoal
