#include <shoal/internal/workers/beton/format/beton_layout.h>

#include <fmt/format.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>

namespace shoal {

std::string_view name_of(BetonType type) {
  switch (type) {
    case BetonType::real:
      return "float";
    case BetonType::integer:
      return "int";
    case BetonType::rgb_image:
      return "rgb_image";
    case BetonType::bytes:
      return "bytes";
    case BetonType::ndarray:
      return "ndarray";
    case BetonType::json:
      return "json";
    case BetonType::tensor:
      return "tensor";
    case BetonType::custom:
      return "custom";
  }
  return "unknown";
}

std::uint64_t BetonField::array_bytes() const {
  std::uint64_t bytes = dtype.bytes;
  for (const std::int64_t size : shape) bytes *= std::uint64_t(size);
  return bytes;
}

namespace detail {

static_assert(std::endian::native == std::endian::little, "shoal: .beton files are little-endian, and so is x86-64");

namespace {

template <class Number>
Number load(const std::uint8_t* at) {
  Number value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool is_known(std::uint8_t type) { return type <= 6 || type == 255; }

/// Throws if an array of that many bytes cannot lie in a page.
void check_array(const BetonField& field, const std::string& where) {
  // Without the zeros: a shape with one takes no bytes, but its strides count the other dimensions.
  unsigned __int128 bytes = field.dtype.bytes;
  for (const std::int64_t size : field.shape) {
    if (size > 0) bytes *= std::uint64_t(size);
    if (size < 0 || bytes > kBetonLargestPage)
      throw DatasetError(
          fmt::format("{}: the array's shape has a dimension of {} and makes more than {} bytes, which no page holds",
                      where, std::uint64_t(size), kBetonLargestPage));
  }
}

void load_array(BetonField& field, const std::uint8_t* arguments, const std::string& where) {
  const std::uint64_t length = load64(arguments + kBetonShapeBytes);
  if (length > kBetonMostDtypeText)
    throw DatasetError(fmt::format("{}: the text of the array's type has {} bytes, at most {} fit", where, length,
                                   kBetonMostDtypeText));
  const auto* text = reinterpret_cast<const char*>(arguments + kBetonShapeBytes + 8);
  field.dtype = parse_dtype(std::string(text, std::size_t(length)), where);
  // Trailing zeros say how many dimensions there are: so [] and [0] look alike, and so do [3] and [3, 0].
  std::size_t dimensions = kBetonMostDimensions;
  while (dimensions > 0 && load64(arguments + 8 * (dimensions - 1)) == 0) --dimensions;
  for (std::size_t i = 0; i < dimensions; ++i) field.shape.push_back(std::int64_t(load64(arguments + 8 * i)));
  check_array(field, where);
}

}  // namespace

std::uint16_t load16(const std::uint8_t* at) { return load<std::uint16_t>(at); }
std::uint32_t load32(const std::uint8_t* at) { return load<std::uint32_t>(at); }
std::uint64_t load64(const std::uint8_t* at) { return load<std::uint64_t>(at); }
void store16(std::uint8_t* at, std::uint16_t value) { std::memcpy(at, &value, sizeof value); }
void store32(std::uint8_t* at, std::uint32_t value) { std::memcpy(at, &value, sizeof value); }
void store64(std::uint8_t* at, std::uint64_t value) { std::memcpy(at, &value, sizeof value); }

BetonHeader load_header(const std::uint8_t* at) {
  return {load16(at), load16(at + 2), load32(at + 4), load64(at + 8), load64(at + 16)};
}

void store_header(std::uint8_t* at, const BetonHeader& header) {
  store16(at, header.version);
  store16(at + 2, header.fields);
  store32(at + 4, header.page_bytes);
  store64(at + 8, header.samples);
  store64(at + 16, header.allocations);
}

void set_cell(BetonField& field) {
  switch (field.type) {
    case BetonType::real:
    case BetonType::integer:
    case BetonType::ndarray:
    case BetonType::tensor:
      field.cell_bytes = field.cell_alignment = 8;
      break;
    case BetonType::rgb_image:  // FFCV packs these: they lie at any place
      field.cell_bytes = kBetonImageCell;
      field.cell_alignment = 1;
      break;
    case BetonType::bytes:
    case BetonType::json:
      field.cell_bytes = 16;
      field.cell_alignment = 1;
      break;
    case BetonType::custom:
      break;
  }
}

std::size_t lay_out_record(std::span<BetonField> fields) {
  std::size_t offset = 0, alignment = 1;
  const auto align = [](std::size_t value, std::size_t to) { return (value + to - 1) / to * to; };
  for (BetonField& field : fields) {
    field.cell_offset = align(offset, field.cell_alignment);
    offset = field.cell_offset + field.cell_bytes;
    alignment = std::max(alignment, field.cell_alignment);
  }
  return align(offset, alignment);
}

BetonDtype dtype_of_code(const std::string& code) {
  BetonDtype dtype{.bytes = 0, .code = code};
  std::size_t at = 0;
  if (!code.empty() && std::strchr("<>|=", code[0]) != nullptr) dtype.order = code[at++];
  if (at >= code.size()) return dtype;
  dtype.kind = code[at++];
  if (std::strchr("biufcSUVmM", dtype.kind) == nullptr) return dtype;
  std::uint64_t size = 0;
  std::size_t digits = 0;
  for (; at < code.size() && std::isdigit(static_cast<unsigned char>(code[at])) != 0 && digits < 10; ++at, ++digits)
    size = size * 10 + std::uint64_t(code[at] - '0');
  const bool has_unit =
      (dtype.kind == 'm' || dtype.kind == 'M') && at < code.size() && code[at] == '[' && code.back() == ']';
  if (digits == 0 || (at != code.size() && !has_unit) || size > kBetonLargestPage) return dtype;
  if (dtype.order == '=') dtype.order = '<';
  dtype.bytes = dtype.kind == 'U' ? 4 * size : size;  // of UCS-4
  return dtype;
}

BetonDtype parse_dtype(const std::string& text, const std::string& where) {
  std::string bare;
  for (const char c : text)
    if (c != ' ') bare += c;
  constexpr std::string_view kBefore = "[[\"\",\"", kAfter = "\"]]";
  if (bare.size() > kBefore.size() + kAfter.size() && bare.starts_with(kBefore) && bare.ends_with(kAfter)) {
    BetonDtype dtype = dtype_of_code(bare.substr(kBefore.size(), bare.size() - kBefore.size() - kAfter.size()));
    if (dtype.bytes > 0) return dtype;
  }
  throw DatasetError(
      fmt::format("{}: the array's type is '{:?}'; it has to be one simple type, as [[\"\", \"<f4\"]]", where, text));
}

void store_descriptor(std::uint8_t* at, const BetonField& field) {
  std::memset(at, 0, kBetonDescriptorBytes);
  at[0] = std::uint8_t(field.type);
  std::ranges::copy(field.name.substr(0, kBetonNameBytes), at + 1);  // no zero behind it
  if (!field.is_array()) return;
  std::uint8_t* arguments = at + 1 + kBetonNameBytes;
  for (std::size_t i = 0; i < field.shape.size(); ++i) store64(arguments + 8 * i, std::uint64_t(field.shape[i]));
  const std::string text = fmt::format("[[\"\", \"{}\"]]", field.dtype.code);
  store64(arguments + kBetonShapeBytes, text.size());
  std::ranges::copy(text, arguments + kBetonShapeBytes + 8);
}

BetonField load_descriptor(const std::uint8_t* at, const std::string& where) {
  BetonField field;
  const auto* name = reinterpret_cast<const char*>(at + 1);
  field.name.assign(name, strnlen(name, kBetonNameBytes));
  if (!is_known(at[0]))
    throw DatasetError(
        fmt::format("{}, field {:?}: its type is {}; there are 0 to 6 and 255", where, field.name, at[0]));
  field.type = BetonType(at[0]);
  if (field.is_array()) load_array(field, at + 1 + kBetonNameBytes, fmt::format("{}, field {:?}", where, field.name));
  set_cell(field);
  return field;
}

}  // namespace detail
}  // namespace shoal
