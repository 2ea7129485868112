// Writes a .beton file: places the regions of samples in pages, beside the file's place, and takes the place at the end.
#pragma once

#include <shoal/ipc/fd.h>
#include <shoal/workers/beton/beton_field.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <vector>

namespace shoal::detail {

/// Bytes of samples, as workers send them. For each sample: its record with zeros where pointers go; for each field with
/// a region its length (8 bytes), then those bytes.
using EncodedSamples = std::span<const std::uint8_t>;

/// A sample is larger than a page; which one and of which file, the caller knows.
class LargerThanPage : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Samples come in the order of their rows. The placing is FFCV's with one process, byte for byte (a sample that does
/// not fit in the page is begun anew in the next one, and what was written of it stays there unused), but for values
/// without bytes: these take one, since FFCV's reader confuses regions that begin at one place. So the file follows from
/// the samples alone, whoever encoded them.
///
/// The file is written beside its place and renamed when it is whole and on disk: if this process dies or gives up, the
/// place keeps what it had. Belongs to one thread of one process. Throws DatasetError, which names the file.
class BetonFileWriter {
 public:
  /// `fields` with their cells laid out (lay_out_record). Notices now that the place is a directory, which no file takes.
  BetonFileWriter(const std::filesystem::path& path, std::vector<BetonField> fields, std::uint64_t page_bytes,
                  std::int64_t samples);
  BetonFileWriter(const BetonFileWriter&) = delete;
  BetonFileWriter& operator=(const BetonFileWriter&) = delete;
  ~BetonFileWriter();

  /// Places the samples. Throws LargerThanPage for the sample of row rows().
  void append(EncodedSamples samples);
  /// Writes what is left, and gives the file its name. All samples have come.
  void finish();

  std::int64_t rows() const { return row_; }      ///< that have come
  std::uint64_t bytes() const { return bytes_; }  ///< of their regions

 private:
  struct Placed {
    std::uint64_t place, bytes;
  };
  const std::uint8_t* append_sample(const std::uint8_t* at, const std::uint8_t* end);
  bool place_regions(std::span<const std::span<const std::uint8_t>> regions, std::vector<Placed>& placed);
  void begin_page();
  void write_page();
  void write_at(std::uint64_t place, std::span<const std::uint8_t> bytes);
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path path_, beside_;
  Fd file_;
  std::vector<BetonField> fields_;
  std::uint64_t page_bytes_, data_;
  std::int64_t samples_, row_ = 0;
  std::uint64_t bytes_ = 0, pages_ = 0;
  std::size_t record_bytes_, used_ = 0;
  bool page_is_open_ = false, renamed_ = false;
  std::vector<std::uint8_t> page_, records_, table_;
  std::vector<std::span<const std::uint8_t>> regions_;
  std::vector<Placed> placed_;
};

}  // namespace shoal::detail
