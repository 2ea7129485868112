// What `shoal beton info` and `shoal beton verify` find out about a file.
#pragma once

#include <shoal/workers/beton/beton_file.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace shoal::command {

/// Lengths of a field's values.
struct SizeSummary {
  std::int64_t count = 0;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max(), most = 0, total = 0;
  std::array<std::int64_t, 33> by_power{};  // by_power[k]: lengths below 2^k and not below 2^(k-1)

  void add(std::uint64_t bytes);
};

/// A field over all samples. The sizes of pictures are those of their records.
struct FieldReport {
  SizeSummary sizes;
  std::int64_t raw = 0, jpg = 0;  // of pictures
  std::int64_t least_width = 0, least_height = 0, most_width = 0, most_height = 0;
};

/// By reading the records and the table, not the values. Throws DatasetError.
std::vector<FieldReport> report_fields(const BetonFile& file);

/// info's text: fields, counts, pages, and a histogram of sizes for each field whose values differ in length.
std::string info_text(const BetonFile& file);

/// What is wrong with a file that could be opened: a line each, at most `most`. All values are read, and JPEGs decoded
/// unless `quick`.
std::vector<std::string> find_faults(const BetonFile& file, bool quick, std::size_t most);

}  // namespace shoal::command
