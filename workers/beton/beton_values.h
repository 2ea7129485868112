// Values of samples that have no type elsewhere: JSON texts, and pictures as their files have them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// A JSON text. As a member of a sample it becomes a json field; nobody checks that it is JSON.
struct BetonJson {
  std::string text;  ///< UTF-8

  bool operator==(const BetonJson&) const = default;
};

/// A picture as its file has it, JPEG or PNG. As a member of a sample it becomes a picture: a JPEG of three colours that
/// need not be made smaller is stored byte for byte where a JPEG is to be stored; everything else is decoded first.
struct EncodedImage {
  std::vector<std::uint8_t> bytes;  ///< the file's
  std::string name;                 ///< for errors
};

}  // namespace shoal
