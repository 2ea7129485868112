// From a sample to the files of a tar archive, in any process.
#pragma once

#include <shoal/internal/workers/beton/make/sample_values.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::detail {

/// Makes files of samples. A plain aggregate, so it crosses to workers; its bytes depend on the sample and its index alone.
struct TarSampleEncoder {
  std::vector<std::string> names;                 // of the members
  std::map<std::string, std::string> extensions;  // see TarWriterOptions
  int jpeg_quality = 0;

  /// Appends what take_tar_sample takes of one sample. Throws std::invalid_argument for values that no file can be made
  /// of, and if they are not as many as the names.
  void append(const SampleValues& values, std::int64_t index, std::vector<std::uint8_t>& bytes) const;
};

/// One sample's files; they refer to the bytes.
struct EncodedTarSample {
  struct File {
    std::string_view extension;
    std::span<const std::uint8_t> contents;
  };
  std::int64_t index;
  std::vector<File> files;
};
/// Takes the first sample off the front of what append() has made.
EncodedTarSample take_tar_sample(std::span<const std::uint8_t>& bytes);

}  // namespace shoal::detail
