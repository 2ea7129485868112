#include <shoal/internal/workers/beton/decode/decode_value.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/beton/decode/picture_planes.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

namespace shoal::detail {
namespace {

std::string where(const BetonPlace& place, std::size_t field) {
  return fmt::format("{}: sample {}, field {:?}", place.file->path(), place.row, place.file->fields()[field].name);
}

at::ScalarType type_of(const BetonPlace& place, std::size_t field) {
  constexpr std::array<std::pair<const char*, at::ScalarType>, 14> kTypes = {{{"u1", at::kByte},
                                                                              {"i1", at::kChar},
                                                                              {"b1", at::kBool},
                                                                              {"i2", at::kShort},
                                                                              {"i4", at::kInt},
                                                                              {"i8", at::kLong},
                                                                              {"u2", at::kUInt16},
                                                                              {"u4", at::kUInt32},
                                                                              {"u8", at::kUInt64},
                                                                              {"f2", at::kHalf},
                                                                              {"f4", at::kFloat},
                                                                              {"f8", at::kDouble},
                                                                              {"c8", at::kComplexFloat},
                                                                              {"c16", at::kComplexDouble}}};
  const BetonDtype& dtype = place.file->fields()[field].dtype;
  const std::string code = dtype.kind + std::to_string(dtype.bytes);
  for (const auto& [name, type] : kTypes)
    if (code == name) return type;
  throw DatasetError(fmt::format("{}: no tensor has elements of the type {:?}", where(place, field), dtype.code));
}

/// Elements of the other byte order; complex ones are two numbers.
void swap_bytes(std::uint8_t* data, std::size_t bytes, const BetonDtype& dtype) {
  const std::size_t number = dtype.kind == 'c' ? dtype.bytes / 2 : dtype.bytes;
  for (std::size_t at = 0; at + number <= bytes; at += number) std::reverse(data + at, data + at + number);
}

}  // namespace

ValueShape shape_of_value(const BetonPlace& place, std::size_t field) {
  const BetonField& described = place.file->fields()[field];
  switch (described.type) {
    case BetonType::integer:
      return {{}, at::kLong};
    case BetonType::real:
      return {{}, at::kDouble};
    case BetonType::rgb_image: {
      const BetonImage image = place.file->image(place.row, field);
      if (image.mode == BetonImageMode::jpg)
        check_jpeg_size(image.bytes, image.width, image.height, where(place, field));
      return {{3, image.height, image.width}, at::kByte};
    }
    case BetonType::bytes:
      return {{std::int64_t(place.file->bytes(place.row, field).size())}, at::kByte};
    case BetonType::json:
      return {{std::int64_t(place.file->json(place.row, field).size())}, at::kByte};
    case BetonType::custom:
      return {{std::int64_t(described.cell_bytes)}, at::kByte};
    case BetonType::ndarray:
    case BetonType::tensor:
      return {described.shape, type_of(place, field)};
  }
  throw std::logic_error("a field of no type");
}

void decode_value(const BetonPlace& place, std::size_t field, std::span<std::uint8_t> target) {
  const BetonField& described = place.file->fields()[field];
  const auto check = [&](std::uint64_t bytes) {
    if (bytes != target.size())
      throw DatasetError(
          fmt::format("{}: has {} bytes now, and had {} a moment ago: the file is being changed; write "
                      "another one, and rename it",
                      where(place, field), bytes, target.size()));
  };
  const auto copy = [&](const void* from, std::size_t bytes) {
    check(bytes);
    if (bytes > 0) std::memcpy(target.data(), from, bytes);
  };
  const auto copy_number = [&](auto number) { copy(&number, sizeof number); };
  switch (described.type) {
    case BetonType::integer:
      return copy_number(place.file->integer(place.row, field));
    case BetonType::real:
      return copy_number(place.file->real(place.row, field));
    case BetonType::rgb_image: {
      const BetonImage image = place.file->image(place.row, field);
      check(std::uint64_t(image.width) * std::uint64_t(image.height) * 3);
      return decode_picture_planes(image, target.data(), where(place, field));
    }
    case BetonType::bytes: {
      const auto bytes = place.file->bytes(place.row, field);
      return copy(bytes.data(), bytes.size());
    }
    case BetonType::json: {
      const auto text = place.file->json(place.row, field);
      return copy(text.data(), text.size());
    }
    case BetonType::custom: {
      const auto bytes = place.file->custom(place.row, field);
      return copy(bytes.data(), bytes.size());
    }
    case BetonType::ndarray:
    case BetonType::tensor: {
      const auto bytes = place.file->array(place.row, field);
      copy(bytes.data(), bytes.size());
      if (described.dtype.order == '>') swap_bytes(target.data(), bytes.size(), described.dtype);
      return;
    }
  }
}

void decode_member(const BetonPlace& place, std::size_t field, at::Tensor& member) {
  const ValueShape shape = shape_of_value(place, field);
  member = at::empty(shape.sizes, at::TensorOptions(shape.type));
  decode_value(place, field, {static_cast<std::uint8_t*>(member.mutable_data_ptr()), member.nbytes()});
}

void decode_member(const BetonPlace& place, std::size_t field, std::string& member) {
  if (place.file->fields()[field].type == BetonType::json) {
    member = place.file->json(place.row, field);
    return;
  }
  const auto bytes = place.file->bytes(place.row, field);
  member.assign(bytes.begin(), bytes.end());
}

void decode_member(const BetonPlace& place, std::size_t field, std::vector<std::uint8_t>& member) {
  const auto bytes = place.file->bytes(place.row, field);
  member.assign(bytes.begin(), bytes.end());
}

void decode_member(const BetonPlace& place, std::size_t field, BetonJson& member) {
  member.text = place.file->json(place.row, field);
}

std::int64_t decode_integer(const BetonPlace& place, std::size_t field, std::int64_t least, std::uint64_t most) {
  const std::int64_t value = place.file->integer(place.row, field);
  if (value < least || (value > 0 && std::uint64_t(value) > most))
    throw DatasetError(
        fmt::format("{}: {} does not fit in the sample's member, {} to {}", where(place, field), value, least, most));
  return value;
}

double decode_real(const BetonPlace& place, std::size_t field) {
  if (place.file->fields()[field].type == BetonType::integer) return double(place.file->integer(place.row, field));
  return place.file->real(place.row, field);
}

at::Tensor decode_field(std::span<const BetonPlace> places, std::size_t field) {
  const ValueShape shape = shape_of_value(places[0], field);
  std::vector<std::int64_t> sizes = shape.sizes;
  sizes.insert(sizes.begin(), std::int64_t(places.size()));
  at::Tensor rows = at::empty(sizes, at::TensorOptions(shape.type));
  auto* target = static_cast<std::uint8_t*>(rows.mutable_data_ptr());
  const std::size_t stride = rows.nbytes() / places.size();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const ValueShape own = shape_of_value(places[i], field);
    if (own != shape)
      throw std::invalid_argument(
          fmt::format("{} is {}, sample {} of the same batch {}: make them equal by a transform, or take a "
                      "Sample of your own",
                      where(places[i], field), own.sizes, places[0].row, shape.sizes));
    decode_value(places[i], field, {target + i * stride, stride});
  }
  return rows;
}

NamedTensors decode_batch(std::span<const BetonPlace> places) {
  if (places.empty()) throw std::invalid_argument("BetonDataset: no indices; a batch has at least one sample");
  NamedTensors batch;
  const auto fields = places[0].file->fields();
  for (std::size_t f = 0; f < fields.size(); ++f) batch.emplace(fields[f].name, decode_field(places, f));
  return batch;
}

}  // namespace shoal::detail
