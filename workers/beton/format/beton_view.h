// The bytes of a .beton file, taken apart: what BetonFile reads, and what fuzz targets give any bytes to.
#pragma once

#include <shoal/internal/workers/beton/format/allocation_index.h>
#include <shoal/workers/beton/beton_file.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::detail {

/// Refers to the bytes, which outlive it. Its members are BetonFile's, and throw what those throw.
class BetonView {
 public:
  /// `name` begins errors.
  BetonView(std::span<const std::uint8_t> file, std::string name, const std::vector<BetonCustomCell>& custom);

  const std::string& name() const { return name_; }
  std::span<const std::uint8_t> file() const { return file_; }
  std::int64_t size() const { return rows_; }
  const std::vector<BetonField>& fields() const { return fields_; }
  std::size_t field(std::string_view name) const;
  std::uint64_t page_bytes() const { return page_bytes_; }
  std::size_t record_bytes() const { return record_bytes_; }

  std::int64_t integer(std::int64_t row, std::size_t field) const;
  double real(std::int64_t row, std::size_t field) const;
  std::span<const std::uint8_t> bytes(std::int64_t row, std::size_t field) const;
  std::string_view json(std::int64_t row, std::size_t field) const;
  std::span<const std::uint8_t> array(std::int64_t row, std::size_t field) const;
  BetonImage image(std::int64_t row, std::size_t field) const;
  std::span<const std::uint8_t> custom(std::int64_t row, std::size_t field) const;
  std::optional<std::uint64_t> page(std::int64_t row) const;

  std::int64_t regions() const { return std::int64_t((file_.size() - table_) / kRegionBytes); }
  BetonRegion region(std::int64_t number) const;

 private:
  static constexpr std::size_t kRegionBytes = 24;

  void read_header();
  void read_fields(const std::vector<BetonCustomCell>& custom);
  void settle_empty_shapes();
  const std::uint8_t* cell(std::int64_t row, std::size_t field) const;
  const std::uint8_t* typed_cell(std::int64_t row, std::size_t field, BetonType type) const;
  /// The bytes [place, place + bytes), which the cell at row and field says, if they lie in the data and in one page.
  std::span<const std::uint8_t> region_of(std::int64_t row, std::size_t field, std::uint64_t place,
                                          std::uint64_t bytes) const;
  /// The beginning of an error: the file, and the place of a cell in it.
  std::string at(std::int64_t row, std::size_t field) const;
  /// The end of an error: what the allocation table lacks; empty if it has a record for each region.
  std::string missing_regions() const;

  std::span<const std::uint8_t> file_;
  std::string name_;
  std::uint64_t page_bytes_ = 0;
  std::size_t meta_ = 0, meta_end_ = 0, table_ = 0;  // the record of row 0; behind the last; the allocation table
  std::size_t record_bytes_ = 0;
  std::int64_t rows_ = 0;
  std::vector<BetonField> fields_;
  std::optional<AllocationIndex> index_;
};

}  // namespace shoal::detail
