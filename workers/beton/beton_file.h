// BetonFile: a .beton file, as FFCV and BetonWriter write it, to read from.
#pragma once

#include <shoal/ipc/codec.h>
#include <shoal/workers/beton/beton_field.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {
namespace detail {
class BetonView;
struct FileStamp;
}  // namespace detail

/// How a picture lies in the file.
enum class BetonImageMode : std::uint8_t {
  jpg = 0,  ///< a JPEG
  raw = 1   ///< its pixels: rows of RGB
};

/// A picture, where it lies in the file. The bytes are valid as long as the file (a copy of the BetonFile) is.
struct BetonImage {
  BetonImageMode mode = BetonImageMode::raw;  ///< what `bytes` are
  std::int64_t width = 0;                     ///< pixels
  std::int64_t height = 0;                    ///< pixels
  std::span<const std::uint8_t> bytes;        ///< height * width * 3, or a JPEG of that size
};

/// A region of a file, by its allocation table.
struct BetonRegion {
  std::uint64_t sample = 0;  ///< its row
  std::uint64_t place = 0;   ///< from the beginning of the file
  std::uint64_t bytes = 0;   ///< its length
};

/// A .beton file (format version 2), mapped read-only. A handle: copies are the same mapping. It crosses to other
/// processes, which open the file anew in its place (a relative path counts from the folder of the process that opened it
/// first) and refuse one that has another size or time of writing by then.
///
/// Every number in a file is taken for hostile: each access checks what it follows, and throws DatasetError, which
/// names file, offset and field. Nothing is read outside the file, and opening takes memory for the fields' descriptions
/// alone; the lengths of JPEGs, if the file has their table out of order, 16 bytes each, when the first is asked for.
///
/// Threads: any. If another process makes the file shorter while it is mapped, reading is a SIGBUS, as with any mapping.
class BetonFile {
 public:
  /// Opens it. Throws DatasetError for a file that is no .beton file, was not finished, or has a custom field that
  /// `custom` does not describe.
  explicit BetonFile(const std::filesystem::path& path, std::vector<BetonCustomCell> custom = {});

  const std::string& path() const;             ///< as given
  std::int64_t size() const;                   ///< samples: the file's rows
  std::span<const BetonField> fields() const;  ///< in the order of the file
  /// The number of the field with this name; longer names are cut to 16 characters first, as in the file. Throws
  /// std::invalid_argument, which lists the names, if none has it, or two have.
  std::size_t field(std::string_view name) const;
  std::uint64_t page_bytes() const;  ///< of each page
  std::uint64_t file_bytes() const;  ///< of the whole file

  /// The value of an int field. As all below: throws std::out_of_range for a row that is not there,
  /// std::invalid_argument for a field of another type.
  std::int64_t integer(std::int64_t row, std::size_t field) const;
  double real(std::int64_t row, std::size_t field) const;                           ///< the value of a float field
  std::span<const std::uint8_t> bytes(std::int64_t row, std::size_t field) const;   ///< of a bytes field
  std::string_view json(std::int64_t row, std::size_t field) const;                 ///< without its NUL
  std::span<const std::uint8_t> array(std::int64_t row, std::size_t field) const;   ///< at any address, C order
  BetonImage image(std::int64_t row, std::size_t field) const;                      ///< its JPEG may be no JPEG
  std::span<const std::uint8_t> custom(std::int64_t row, std::size_t field) const;  ///< the cell itself

  /// Where bytes that a member above returned begin in the file.
  std::uint64_t place_of(std::span<const std::uint8_t> bytes) const;
  /// The page (of the whole file, from 0) in which the sample's values lie; nothing if it has none outside its record.
  std::optional<std::uint64_t> page(std::int64_t row) const;
  /// Asks the system to read a page into its cache, and waits until it has been asked for all of it. Of a page that is not
  /// there, or cannot be read: nothing.
  void prefetch_page(std::uint64_t page) const;
  /// Lets the system take a page's memory back; other processes that use it keep it.
  void drop_page(std::uint64_t page) const;
  /// Drops a page, and takes it out of the kernel's cache, unless another process has it mapped in.
  void forget_page(std::uint64_t page) const;

  /// Records of the allocation table.
  std::int64_t regions() const;
  /// Record `number`, in the table's order; its numbers are as the file has them.
  BetonRegion region(std::int64_t number) const;

  const std::vector<BetonCustomCell>& custom_cells() const;  ///< as given

 private:
  friend struct Codec<BetonFile>;
  struct Opened;
  explicit BetonFile(std::shared_ptr<const Opened> opened);
  std::shared_ptr<const Opened> opened_;
  const detail::BetonView& view() const;
  const detail::FileStamp& stamp() const;
};

/// As a message: the path as given and from the root, by which the other process opens it, and the size and time that it
/// has to have there.
template <>
struct Codec<BetonFile> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::BetonFile in its place"); }
  static void encode(Encoder& encoder, const BetonFile& file);
  static BetonFile decode(Decoder& decoder);
};

}  // namespace shoal
