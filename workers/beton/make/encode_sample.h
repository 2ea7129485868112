// From a sample to its record and regions in a .beton file.
#pragma once

#include <shoal/internal/workers/beton/make/sample_values.h>
#include <shoal/ipc/codec.h>
#include <shoal/workers/beton/beton_field.h>
#include <shoal/workers/beton/beton_image_options.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace shoal::detail {

/// Throws std::invalid_argument, which names option and value.
void check(std::uint64_t page_bytes, int num_workers, std::int64_t chunk_size);

/// "FILE: sample 3 can't be written: WHAT".
std::string failure_text(const std::filesystem::path& path, std::int64_t index, const std::exception_ptr& cause);

/// How values are stored, for all fields; a plain aggregate.
struct EncodingOptions {
  BetonImageOptions images = {};
  std::map<std::string, BetonFieldOptions> fields = {};
  std::uint64_t seed = 0;
};

/// Encodes samples of one data set, in any process: a plain value that crosses. Its bytes depend on the sample and its
/// index alone.
class SampleEncoder {
 public:
  SampleEncoder() = default;
  /// The fields follow from the first sample's values. Throws std::invalid_argument, which names the field.
  SampleEncoder(const std::vector<std::string>& names, const std::vector<MemberValue>& first, EncodingOptions options);

  const std::vector<BetonField>& fields() const { return fields_; }
  /// Appends what BetonFileWriter::append takes of one sample. Throws std::invalid_argument, which names the field, for
  /// values that do not fit the first sample's; DatasetError for pictures that cannot be decoded.
  void append(const std::vector<MemberValue>& values, std::int64_t index, std::vector<std::uint8_t>& bytes) const;

 private:
  friend struct Codec<SampleEncoder>;
  std::vector<BetonField> fields_;
  std::vector<BetonImageOptions> images_;  // of each field
  std::uint64_t seed_ = 0;
  std::size_t record_bytes_ = 0;
};

}  // namespace shoal::detail

namespace shoal {
template <>
struct Codec<detail::SampleEncoder> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::SampleEncoder"); }
  static void encode(Encoder& encoder, const detail::SampleEncoder& value);
  static detail::SampleEncoder decode(Decoder& decoder);
};
}  // namespace shoal
