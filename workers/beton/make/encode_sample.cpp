#include <shoal/internal/workers/beton/make/encode_sample.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/beton/format/beton_layout.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/internal/workers/beton/write/area_resize.h>
#include <shoal/workers/data/sample_random.h>
#include <shoal/workers/images/decode.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

namespace shoal::detail {
namespace {

/// NumPy's code of a tensor's type; empty if it has none (bfloat16, quantized types).
std::string code_of(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return "|u1";
    case at::kChar:
      return "|i1";
    case at::kBool:
      return "|b1";
    case at::kShort:
      return "<i2";
    case at::kInt:
      return "<i4";
    case at::kLong:
      return "<i8";
    case at::kUInt16:
      return "<u2";
    case at::kUInt32:
      return "<u4";
    case at::kUInt64:
      return "<u8";
    case at::kHalf:
      return "<f2";
    case at::kFloat:
      return "<f4";
    case at::kDouble:
      return "<f8";
    case at::kComplexFloat:
      return "<c8";
    case at::kComplexDouble:
      return "<c16";
    default:
      return "";
  }
}

bool is_picture(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kByte && tensor.dim() == 3 && tensor.size(0) == 3;
}

BetonType type_of_tensor(const at::Tensor& tensor) {
  if (is_picture(tensor)) return BetonType::rgb_image;
  if (tensor.dim() > 0) return BetonType::tensor;
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) ? BetonType::integer : BetonType::real;
}

BetonType type_of(const MemberValue& value) {
  if (std::holds_alternative<std::int64_t>(value)) return BetonType::integer;
  if (std::holds_alternative<double>(value)) return BetonType::real;
  if (std::holds_alternative<const BetonJson*>(value)) return BetonType::json;
  if (std::holds_alternative<const EncodedImage*>(value)) return BetonType::rgb_image;
  if (const auto* tensor = std::get_if<const at::Tensor*>(&value)) return type_of_tensor(**tensor);
  return BetonType::bytes;
}

bool fits(BetonType asked, const MemberValue& value) {
  const BetonType own = type_of(value);
  if (asked == own) return true;
  const bool is_array = asked == BetonType::ndarray || asked == BetonType::tensor;
  if (const auto* tensor = std::get_if<const at::Tensor*>(&value)) return is_array && (*tensor)->dim() > 0;
  return asked == BetonType::json && own == BetonType::bytes;
}

void describe_array(BetonField& field, const at::Tensor& tensor) {
  const std::string code = code_of(tensor.scalar_type());
  if (code.empty())
    throw std::invalid_argument(
        fmt::format("field {:?}: NumPy has no type for {}", field.name, c10::toString(tensor.scalar_type())));
  field.dtype = dtype_of_code(code);
  field.shape = tensor.sizes().vec();
  if (field.shape.size() > kBetonMostDimensions || field.shape.back() == 0)
    throw std::invalid_argument(
        fmt::format("field {:?}: a .beton file cannot have the shape {}: at most 32 dimensions, the last one not 0",
                    field.name, field.shape));
}

/// FFCV's file has 16 bytes for a name, and its reader loses one of two fields with equal ones.
void check_names(const std::vector<BetonField>& fields) {
  if (fields.empty() || fields.size() > kBetonMostFields)
    throw std::invalid_argument(
        fmt::format("BetonWriter: samples of {} fields; a .beton file has 1 to {}", fields.size(), kBetonMostFields));
  std::set<std::string> seen;
  for (const BetonField& field : fields) {
    const bool is_ascii = std::ranges::all_of(field.name, [](char c) { return c > 31 && c < 127; });
    if (field.name.empty() || !is_ascii)
      throw std::invalid_argument(fmt::format("BetonWriter: a field's name is {:?}; give ASCII", field.name));
    if (!seen.insert(field.name.substr(0, kBetonNameBytes)).second)
      throw std::invalid_argument(
          fmt::format("BetonWriter: two fields' names begin with {:?}; the file has the first 16 characters only",
                      field.name.substr(0, kBetonNameBytes)));
  }
}

void check_images(const BetonImageOptions& images, const std::string& field) {
  if (images.jpeg_quality < 1 || images.jpeg_quality > 100)
    throw std::invalid_argument(fmt::format("field {:?}: jpeg_quality is {}; 1 to 100", field, images.jpeg_quality));
  if (images.max_resolution < 0 || !(images.compress_probability >= 0 && images.compress_probability <= 1))
    throw std::invalid_argument(
        fmt::format("field {:?}: max_resolution is {}, compress_probability {}; at least 0, and 0 to 1", field,
                    images.max_resolution, images.compress_probability));
}

/// Of a BetonRow: the compiler counts members of other samples.
void check_count(std::size_t values, std::size_t fields) {
  if (values != fields)
    throw std::invalid_argument(fmt::format("BetonWriter: a sample of {} values for {} fields", values, fields));
}

/// The bytes of a tensor elsewhere cannot be read here.
void check_is_here(const BetonField& field, const MemberValue& value) {
  const auto* tensor = std::get_if<const at::Tensor*>(&value);
  if (tensor != nullptr && !(*tensor)->is_cpu())
    throw std::invalid_argument(
        fmt::format("field {:?}: this sample's tensor is on {}; give tensors on the CPU (.cpu())", field.name,
                    (*tensor)->device().str()));
}

class BytesEnd {
 public:
  explicit BytesEnd(std::vector<std::uint8_t>& bytes) : bytes_(bytes) {}
  void add(std::span<const std::uint8_t> more) { bytes_.insert(bytes_.end(), more.begin(), more.end()); }
  void add_length(std::uint64_t length) {
    bytes_.resize(bytes_.size() + 8);
    store64(bytes_.data() + bytes_.size() - 8, length);
  }

 private:
  std::vector<std::uint8_t>& bytes_;
};

/// Rows of RGB from planes.
RgbRows rows_of(const at::Tensor& planes) {
  const at::Tensor rows = planes.permute({1, 2, 0}).contiguous();
  const auto* pixels = rows.const_data_ptr<std::uint8_t>();
  return {planes.size(2), planes.size(1), {pixels, pixels + rows.numel()}};
}

bool is_jpeg(std::span<const std::uint8_t> bytes) {
  return bytes.size() > 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

/// One picture of one field.
class PictureEncoder {
 public:
  PictureEncoder(const BetonImageOptions& options, const SampleKey& key, std::uint64_t field)
      : options_(options), random_(key, inner_operation(0x6265746f6e, field)) {}

  /// Fills in the cell but for its pointer, and appends the region with its length.
  void append(const MemberValue& value, std::uint8_t* cell, std::vector<std::uint8_t>& pixels) {
    if (const auto* encoded = std::get_if<const EncodedImage*>(&value))
      take(**encoded);
    else
      take(*std::get<const at::Tensor*>(value));
    if (is_jpg_ && width_ * height_ > kMostJpegPixels)
      throw std::invalid_argument(fmt::format(
          "a JPEG has {} x {} pixels, and readers refuse more than {}: give a max_resolution, or store it raw", width_,
          height_, kMostJpegPixels));
    pixels.swap(region_);
    cell[0] = is_jpg_ ? 0 : 1;
    store16(cell + 1, std::uint16_t(width_));
    store16(cell + 3, std::uint16_t(height_));
  }

 private:
  void take(const EncodedImage& picture) {
    if (is_jpeg(picture.bytes) && options_.verbatim) {
      const JpegHeader header = jpeg_header(picture.bytes, picture.name);
      check_sides(header.width, header.height);
      const PixelSize size = bounded_size(header.width, header.height, options_.max_resolution);
      if (header.components == 3 && size == PixelSize{header.width, header.height} && is_to_be_jpg(size)) {
        is_jpg_ = true;
        width_ = header.width;
        height_ = header.height;
        region_ = picture.bytes;
        return;
      }
    }
    take_rows(rows_of(decode_image(picture.bytes, picture.name)));
  }
  void take(const at::Tensor& planes) {
    if (!is_picture(planes) || planes.size(1) < 1 || planes.size(2) < 1)
      throw std::invalid_argument(fmt::format("a picture is {} {}; give uint8 [3, height, width]",
                                              c10::toString(planes.scalar_type()), planes.sizes().vec()));
    take_rows(rows_of(planes));
  }
  void take_rows(RgbRows rows) {
    const PixelSize size = bounded_size(rows.width, rows.height, options_.max_resolution);
    if (size != PixelSize{rows.width, rows.height}) rows = resize_by_area(rows.pixels, rows.width, rows.height, size);
    check_sides(rows.width, rows.height);
    width_ = rows.width;
    height_ = rows.height;
    is_jpg_ = is_to_be_jpg(size);
    region_ = is_jpg_ ? encode_jpeg_rows(rows.pixels, rows.width, rows.height, options_.jpeg_quality)
                      : std::move(rows.pixels);
  }
  static void check_sides(std::int64_t width, std::int64_t height) {
    if (width > 65535 || height > 65535)
      throw std::invalid_argument(
          fmt::format("a picture has {} x {} pixels; a .beton file has at most 65535 a side", width, height));
  }
  /// Asked once a picture: proportion draws.
  bool is_to_be_jpg(PixelSize size) {
    if (!drawn_) drawn_ = random_.chance(options_.compress_probability);
    switch (options_.write_mode) {
      case BetonWriteMode::raw:
        return false;
      case BetonWriteMode::jpg:
        return true;
      case BetonWriteMode::smart:
        return options_.smart_threshold > 0 &&
               std::uint64_t(size.width) * std::uint64_t(size.height) * 3 > options_.smart_threshold;
      case BetonWriteMode::proportion:
        return *drawn_;
    }
    return false;
  }

  const BetonImageOptions& options_;
  SampleRandom random_;
  std::optional<bool> drawn_;
  bool is_jpg_ = false;
  std::int64_t width_ = 0, height_ = 0;
  std::vector<std::uint8_t> region_;
};

std::int64_t integer_of(const MemberValue& value) {
  if (const auto* tensor = std::get_if<const at::Tensor*>(&value)) return (*tensor)->item<std::int64_t>();
  return std::get<std::int64_t>(value);
}
double real_of(const MemberValue& value) {
  if (const auto* tensor = std::get_if<const at::Tensor*>(&value)) return (*tensor)->item<double>();
  return std::get<double>(value);
}

}  // namespace

std::vector<std::string> numbered_names(const std::vector<std::string>& given, std::size_t count) {
  if (!given.empty() && given.size() != count)
    throw std::invalid_argument(fmt::format("BetonWriter: {} names for samples of {} values", given.size(), count));
  std::vector<std::string> names = given;
  for (std::size_t i = names.size(); i < count; ++i) names.push_back(fmt::format("field{}", i));
  return names;
}

void check(std::uint64_t page_bytes, int num_workers, std::int64_t chunk_size) {
  if (!std::has_single_bit(page_bytes) || page_bytes < kBetonSmallestPage || page_bytes > kBetonLargestPage)
    throw std::invalid_argument(
        fmt::format("BetonWriter: page_bytes is {}; give a power of two from 2 MiB to 2 GiB", page_bytes));
  if (num_workers < 0 || chunk_size < 1)
    throw std::invalid_argument(
        fmt::format("BetonWriter: num_workers is {}, chunk_size {}; at least 0 and 1", num_workers, chunk_size));
}

std::string failure_text(const std::filesystem::path& path, std::int64_t index, const std::exception_ptr& cause) {
  std::string what = "an exception that is no std::exception";
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {  // NOLINT(bugprone-empty-catch): said above
  }
  return fmt::format("{}: sample {} can't be written: {}", path.native(), index, what);
}

SampleEncoder::SampleEncoder(const std::vector<std::string>& names, const std::vector<MemberValue>& first,
                             EncodingOptions options)
    : seed_(options.seed) {
  for (const auto& [name, unused] : options.fields)
    if (std::ranges::find(names, name) == names.end())
      throw std::invalid_argument(
          fmt::format("BetonWriter: options for the field {:?}; the samples have {}", name, fmt::join(names, ", ")));
  check_count(first.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const BetonFieldOptions& own = options.fields[names[i]];
    BetonField field{.name = names[i], .type = own.type.value_or(type_of(first[i]))};
    if (!fits(field.type, first[i]))
      throw std::invalid_argument(fmt::format("field {:?}: a value of type {} cannot be stored as {}", names[i],
                                              name_of(type_of(first[i])), name_of(field.type)));
    if (field.is_array()) describe_array(field, *std::get<const at::Tensor*>(first[i]));
    set_cell(field);
    images_.push_back(own.images.value_or(options.images));
    check_images(images_.back(), field.name);
    fields_.push_back(std::move(field));
  }
  check_names(fields_);
  record_bytes_ = lay_out_record(fields_);
}

void SampleEncoder::append(const std::vector<MemberValue>& values, std::int64_t index,
                           std::vector<std::uint8_t>& bytes) const {
  check_count(values.size(), fields_.size());
  const std::size_t record = bytes.size();
  bytes.resize(record + record_bytes_);
  std::vector<std::uint8_t> region;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const BetonField& field = fields_[i];
    const MemberValue& value = values[i];
    const auto cell = [&] { return bytes.data() + record + field.cell_offset; };
    if (!fits(field.type, value))
      throw std::invalid_argument(fmt::format("field {:?}: this sample's value is of type {}, the first one's of {}",
                                              field.name, name_of(type_of(value)), name_of(field.type)));
    check_is_here(field, value);
    switch (field.type) {
      case BetonType::integer:
        store64(cell(), std::uint64_t(integer_of(value)));
        continue;
      case BetonType::real:
        store64(cell(), std::bit_cast<std::uint64_t>(real_of(value)));
        continue;
      case BetonType::rgb_image:
        PictureEncoder(images_[i], {seed_, 0, std::uint64_t(index)}, i).append(value, cell(), region);
        break;
      case BetonType::ndarray:
      case BetonType::tensor: {
        // Elements as they read: a conjugate or a negative may be a view of others, which has their bytes.
        const at::Tensor tensor = std::get<const at::Tensor*>(value)->resolve_conj().resolve_neg().contiguous();
        if (tensor.sizes().vec() != field.shape || code_of(tensor.scalar_type()) != field.dtype.code)
          throw std::invalid_argument(fmt::format("field {:?}: this sample's is {} {}, the first one's {} {}",
                                                  field.name, c10::toString(tensor.scalar_type()), tensor.sizes().vec(),
                                                  field.dtype.code, field.shape));
        const auto* data = static_cast<const std::uint8_t*>(tensor.const_data_ptr());
        region.assign(data, data + tensor.nbytes());
        break;
      }
      case BetonType::bytes:
      case BetonType::json: {
        std::span<const std::uint8_t> text;
        if (const auto* json = std::get_if<const BetonJson*>(&value))
          text = {reinterpret_cast<const std::uint8_t*>((*json)->text.data()), (*json)->text.size()};
        else
          text = std::get<std::span<const std::uint8_t>>(value);
        region.assign(text.begin(), text.end());
        if (field.type == BetonType::json) region.push_back(0);
        store64(cell() + 8, region.size());
        break;
      }
      case BetonType::custom:
        continue;
    }
    BytesEnd end(bytes);
    end.add_length(region.size());
    end.add(region);
  }
}

}  // namespace shoal::detail

namespace shoal {

void Codec<detail::SampleEncoder>::encode(Encoder& encoder, const detail::SampleEncoder& value) {
  shoal::encode(encoder, value.fields_);
  shoal::encode(encoder, value.images_);
  shoal::encode(encoder, value.seed_);
}

detail::SampleEncoder Codec<detail::SampleEncoder>::decode(Decoder& decoder) {
  detail::SampleEncoder value;
  value.fields_ = shoal::decode<std::vector<BetonField>>(decoder);
  value.images_ = shoal::decode<std::vector<BetonImageOptions>>(decoder);
  value.seed_ = shoal::decode<std::uint64_t>(decoder);
  value.record_bytes_ = detail::lay_out_record(value.fields_);
  return value;
}

}  // namespace shoal
