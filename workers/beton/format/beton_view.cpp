#include <shoal/internal/workers/beton/format/beton_view.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/beton/format/beton_layout.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <utility>

namespace shoal::detail {

static_assert(kBetonRegionBytes == 24);

BetonView::BetonView(std::span<const std::uint8_t> file, std::string name, const std::vector<BetonCustomCell>& custom)
    : file_(file), name_(std::move(name)) {
  read_header();
  read_fields(custom);
  index_.emplace(file_.subspan(table_));
  settle_empty_shapes();
}

void BetonView::read_header() {
  if (file_.size() < kBetonHeaderBytes)
    throw DatasetError(
        fmt::format("{}: no .beton file: {} bytes, its header alone has {}", name_, file_.size(), kBetonHeaderBytes));
  const BetonHeader header = load_header(file_.data());
  const auto refuse = [this](int offset, const std::string& what) {
    throw DatasetError(fmt::format("{}: offset {}: {}", name_, offset, what));
  };
  if (header.version != kBetonVersion)
    refuse(0, fmt::format(
                  "format version {}; this reads {}: it is no .beton file, or one of another version of the format. "
                  "It has {} bytes and begins with {:02x}",
                  header.version, kBetonVersion, file_.size(), fmt::join(file_.first(8), " ")));
  if (header.fields == 0) refuse(2, "the file has no fields");
  if (!std::has_single_bit(header.page_bytes) || header.page_bytes < kBetonSmallestPage ||
      header.page_bytes > kBetonLargestPage)
    refuse(4, fmt::format(
                  "pages of {} bytes; they are a power of two from 2 MiB to 2 GiB: it is no .beton file, or damaged",
                  header.page_bytes));
  if (header.allocations == 0) refuse(16, "the file was not finished: its writer is at work, or ended before its end");
  meta_ = kBetonHeaderBytes + kBetonDescriptorBytes * std::size_t(header.fields);
  if (header.allocations > file_.size())
    refuse(16,
           fmt::format("the allocation table begins at {}, and the file has {} bytes: it is cut short by {} at least",
                       header.allocations, file_.size(), header.allocations - file_.size()));
  if (header.allocations < meta_)
    refuse(16, fmt::format("the allocation table begins at {}, within the {} fields (to {})", header.allocations,
                           header.fields, meta_));
  if ((file_.size() - header.allocations) % kBetonRegionBytes != 0)
    refuse(16, fmt::format(
                   "the allocation table, to the end of the file's {} bytes, has {}, not a multiple of {}; the file "
                   "is cut short, or was appended to",
                   file_.size(), file_.size() - header.allocations, kBetonRegionBytes));
  if (header.samples > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
    refuse(8, fmt::format("{} samples", header.samples));
  page_bytes_ = header.page_bytes;
  table_ = std::size_t(header.allocations);
  rows_ = std::int64_t(header.samples);
}

void BetonView::read_fields(const std::vector<BetonCustomCell>& custom) {
  for (std::size_t offset = kBetonHeaderBytes; offset < meta_; offset += kBetonDescriptorBytes)
    fields_.push_back(load_descriptor(file_.data() + offset, fmt::format("{}: offset {}", name_, offset)));
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    BetonField& field = fields_[i];
    if (field.type != BetonType::custom) continue;
    const auto told = std::ranges::find(custom, field.name, [](const BetonCustomCell& cell) {
      return std::string_view(cell.field).substr(0, kBetonNameBytes);
    });
    if (told == custom.end())
      throw DatasetError(fmt::format(
          "{}: offset {}, field {:?}: a custom field (type 255), whose size in a record the file does not say: "
          "give a BetonCustomCell",
          name_, kBetonHeaderBytes + i * kBetonDescriptorBytes, field.name));
    if (told->bytes == 0 || told->bytes > kBetonLargestPage || !std::has_single_bit(told->alignment) ||
        told->alignment > 16)
      throw std::invalid_argument(fmt::format(
          "BetonCustomCell of field {:?}: {} bytes, alignment {}; give at least 1 byte, and 1, 2, 4, 8 or 16",
          told->field, told->bytes, told->alignment));
    field.cell_bytes = told->bytes;
    field.cell_alignment = told->alignment;
  }
  record_bytes_ = lay_out_record(fields_);
  // A division, since the product may not fit.
  if (std::uint64_t(rows_) > (table_ - meta_) / record_bytes_)
    throw DatasetError(fmt::format(
        "{}: offset 8: {} samples of {} bytes each do not fit between the fields ({}) and the allocation table ({})",
        name_, rows_, record_bytes_, meta_, table_));
  meta_end_ = meta_ + std::size_t(rows_) * record_bytes_;
}

// The shape's dimensions end where zeros begin, so an array of no dimensions looks like one of length 0, and [3, 0] like
// [3]. The length of the first sample's region tells them apart: it is one element long, or nothing.
void BetonView::settle_empty_shapes() {
  for (std::size_t f = 0; f < fields_.size(); ++f) {
    BetonField& field = fields_[f];
    if (!field.is_array() || rows_ == 0) continue;
    const std::uint64_t place = load64(cell(0, f)), expected = field.array_bytes();
    if (expected == 0) continue;  // the file says that it is empty: {0, 3}
    bool found = false, empty = false;
    for (std::int64_t i = 0; i < regions() && !found; ++i) {
      const BetonRegion record = region(i);
      if (record.sample != 0 || record.place != place) continue;
      found = record.bytes == expected;
      empty = empty || record.bytes == 0;
    }
    if (!found && empty) field.shape.push_back(0);
  }
}

std::size_t BetonView::field(std::string_view name) const {
  const std::string_view cut = name.substr(0, kBetonNameBytes);
  const auto found = std::ranges::find(fields_, cut, &BetonField::name);
  if (found == fields_.end()) {
    std::vector<std::string> names;
    names.reserve(fields_.size());
    for (const BetonField& field : fields_) names.push_back(field.name);
    throw std::invalid_argument(
        fmt::format("{}: no field is named {:?}; there are {}", name_, cut, fmt::join(names, ", ")));
  }
  if (std::ranges::find(found + 1, fields_.end(), cut, &BetonField::name) != fields_.end())
    throw std::invalid_argument(fmt::format("{}: two fields are named {:?}; ask by number", name_, cut));
  return std::size_t(found - fields_.begin());
}

const std::uint8_t* BetonView::cell(std::int64_t row, std::size_t field) const {
  if (row < 0 || row >= rows_) throw std::out_of_range(fmt::format("{}: sample {}; there are {}", name_, row, rows_));
  if (field >= fields_.size())
    throw std::out_of_range(fmt::format("{}: field number {}; there are {}", name_, field, fields_.size()));
  return file_.data() + meta_ + std::size_t(row) * record_bytes_ + fields_[field].cell_offset;
}

const std::uint8_t* BetonView::typed_cell(std::int64_t row, std::size_t field, BetonType type) const {
  const std::uint8_t* at = cell(row, field);
  const BetonField& asked = fields_[field];
  const bool fits = asked.type == type || (type == BetonType::ndarray && asked.is_array()) ||
                    (type == BetonType::bytes && asked.type == BetonType::json);
  if (!fits)
    throw std::invalid_argument(
        fmt::format("{}: field {:?} is of type {}, not {}", name_, asked.name, name_of(asked.type), name_of(type)));
  return at;
}

std::string BetonView::at(std::int64_t row, std::size_t field) const {
  return fmt::format("{}: offset {}, sample {}, field {:?}", name_, cell(row, field) - file_.data(), row,
                     fields_[field].name);
}

std::span<const std::uint8_t> BetonView::region_of(std::int64_t row, std::size_t field, std::uint64_t place,
                                                   std::uint64_t bytes) const {
  if (bytes == 0) return {};  // FFCV writes any place then
  if (place < meta_end_ || place > table_ || bytes > table_ - place)
    throw DatasetError(fmt::format("{}: {} bytes at {} do not lie in the file's data ({} to {})", at(row, field), bytes,
                                   place, meta_end_, table_));
  if (place / page_bytes_ != (place + bytes - 1) / page_bytes_)
    throw DatasetError(
        fmt::format("{}: {} bytes at {} cross the end of a page of {}", at(row, field), bytes, place, page_bytes_));
  return file_.subspan(std::size_t(place), std::size_t(bytes));
}

std::int64_t BetonView::integer(std::int64_t row, std::size_t field) const {
  return std::int64_t(load64(typed_cell(row, field, BetonType::integer)));
}

double BetonView::real(std::int64_t row, std::size_t field) const {
  return std::bit_cast<double>(load64(typed_cell(row, field, BetonType::real)));
}

std::span<const std::uint8_t> BetonView::bytes(std::int64_t row, std::size_t field) const {
  const std::uint8_t* cell = typed_cell(row, field, BetonType::bytes);
  return region_of(row, field, load64(cell), load64(cell + 8));
}

std::string_view BetonView::json(std::int64_t row, std::size_t field) const {
  typed_cell(row, field, BetonType::json);
  const auto text = bytes(row, field);
  if (text.empty() || text.back() != 0)
    throw DatasetError(
        fmt::format("{}: the JSON text of {} bytes does not end in a zero byte", at(row, field), text.size()));
  return {reinterpret_cast<const char*>(text.data()), text.size() - 1};
}

std::span<const std::uint8_t> BetonView::array(std::int64_t row, std::size_t field) const {
  return region_of(row, field, load64(typed_cell(row, field, BetonType::ndarray)), fields_[field].array_bytes());
}

BetonImage BetonView::image(std::int64_t row, std::size_t field) const {
  const std::uint8_t* cell = typed_cell(row, field, BetonType::rgb_image);
  if (cell[0] > 1)
    throw DatasetError(fmt::format("{}: the picture's mode is {}; 0 is JPEG, 1 raw", at(row, field), cell[0]));
  BetonImage image{.mode = BetonImageMode(cell[0]), .width = load16(cell + 1), .height = load16(cell + 3), .bytes = {}};
  const std::uint64_t place = load64(cell + 5);
  std::uint64_t bytes = std::uint64_t(image.width) * std::uint64_t(image.height) * 3;
  if (image.mode == BetonImageMode::jpg) {
    const auto found = index_->bytes_at(place);  // a JPEG's length is nowhere else
    if (!found)
      throw DatasetError(fmt::format("{}: the allocation table has no region at {}, where this JPEG begins{}",
                                     at(row, field), place, missing_regions()));
    bytes = *found;
  }
  image.bytes = region_of(row, field, place, bytes);
  return image;
}

std::span<const std::uint8_t> BetonView::custom(std::int64_t row, std::size_t field) const {
  const std::uint8_t* cell = typed_cell(row, field, BetonType::custom);
  return {cell, fields_[field].cell_bytes};
}

std::optional<std::uint64_t> BetonView::page(std::int64_t row) const {
  for (std::size_t f = 0; f < fields_.size(); ++f) {
    const std::uint8_t* at = cell(row, f);
    const BetonField& field = fields_[f];
    if (!field.has_region()) continue;
    const bool is_text = field.type == BetonType::bytes || field.type == BetonType::json;
    if ((is_text && load64(at + 8) == 0) || (field.is_array() && field.array_bytes() == 0)) continue;
    const std::uint64_t place = load64(at + (field.type == BetonType::rgb_image ? 5 : 0));
    if (place >= meta_end_ && place < table_) return place / page_bytes_;
  }
  return std::nullopt;
}

std::string BetonView::missing_regions() const {
  const auto of_each = std::ranges::count_if(fields_, &BetonField::has_region);
  const std::int64_t all =
      rows_ * std::int64_t(of_each);  // a record has 8 bytes for each, and all records lie in the file
  if (all <= regions()) return "";
  return fmt::format(
      "; the table has {} of {} regions, to the end of the file's {} bytes: it is cut short, or was never whole",
      regions(), all, file_.size());
}

BetonRegion BetonView::region(std::int64_t number) const {
  if (number < 0 || number >= regions())
    throw std::out_of_range(fmt::format("{}: region {}; the allocation table has {}", name_, number, regions()));
  const std::uint8_t* record = file_.data() + table_ + std::size_t(number) * kBetonRegionBytes;
  return {load64(record), load64(record + 8), load64(record + 16)};
}

}  // namespace shoal::detail
