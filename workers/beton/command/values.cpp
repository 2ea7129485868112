#include <shoal/internal/workers/beton/command/values.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/beton/command/sha256.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

namespace shoal::command {
namespace {

std::string hashed(const std::vector<std::int64_t>& shape, const std::string& dtype,
                   std::span<const std::uint8_t> bytes) {
  return fmt::format(R"({{"shape":[{}],"dtype":{},"sha256":"{}"}})", fmt::join(shape, ","),
                     nlohmann::json(dtype).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
                     sha256(bytes));
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return nlohmann::json(value).dump();
}

/// The text with Python's three words, outside of strings, as 0.
std::string without_python_words(std::string_view text) {
  std::string result;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!in_string) {
      bool found = false;
      for (const std::string_view word : {"NaN", "Infinity"})
        if (!found && text.substr(i).starts_with(word)) {
          result += '0';
          i += word.size() - 1;
          found = true;
        }
      if (found) continue;
    }
    result += text[i];
    if (in_string && text[i] == '\\' && i + 1 < text.size())
      result += text[++i];
    else if (text[i] == '"')
      in_string = !in_string;
  }
  return result;
}

}  // namespace

std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) line += c == '\n' || c == '\r' ? ' ' : c;  // in JSON these are never inside of strings
  return line;
}

bool is_json(std::string_view text) { return nlohmann::json::accept(without_python_words(text)); }

std::vector<std::uint8_t> pixels_of(const BetonFile& file, std::int64_t row, std::size_t field) {
  const BetonImage image = file.image(row, field);
  if (image.mode == BetonImageMode::raw) return {image.bytes.begin(), image.bytes.end()};
  const std::string name = fmt::format("{}: offset {}, sample {}, field {:?}", file.path(), file.place_of(image.bytes),
                                       row, file.fields()[field].name);
  // The size is that of the JPEG's own header, or nothing is made: a record may say any.
  detail::check_jpeg_size(image.bytes, image.width, image.height, name);
  std::vector<std::uint8_t> pixels(std::size_t(image.width * image.height) * 3);
  detail::decode_jpeg_rows(image.bytes, image.width, image.height, pixels, name);
  return pixels;
}

std::string json_of(const BetonFile& file, std::int64_t row, std::size_t field) {
  const BetonField& described = file.fields()[field];
  switch (described.type) {
    case BetonType::integer:
      return fmt::format("{}", file.integer(row, field));
    case BetonType::real:
      return number(file.real(row, field));
    case BetonType::bytes: {
      const auto bytes = file.bytes(row, field);
      return hashed({std::int64_t(bytes.size())}, "|u1", bytes);
    }
    case BetonType::json: {
      const std::string_view text = file.json(row, field);
      if (is_json(text)) return on_one_line(text);
      return nlohmann::json(std::string(text)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    }
    case BetonType::ndarray:
    case BetonType::tensor:
      return hashed(described.shape, described.dtype.code, file.array(row, field));
    case BetonType::rgb_image: {
      const BetonImage image = file.image(row, field);
      return fmt::format(R"({{"mode":"{}","width":{},"height":{},"sha256":"{}"}})",
                         image.mode == BetonImageMode::raw ? "raw" : "jpg", image.width, image.height,
                         sha256(pixels_of(file, row, field)));
    }
    case BetonType::custom: {
      const auto bytes = file.custom(row, field);
      return hashed({std::int64_t(bytes.size())}, "|u1", bytes);
    }
  }
  throw std::logic_error("a field of no type");
}

BetonCustomCell parse_custom(const std::string& text) {
  const auto equals = text.rfind('='), colon = text.find(':', equals == std::string::npos ? 0 : equals);
  BetonCustomCell cell{.field = text.substr(0, equals)};
  const auto read = [&](std::size_t from, std::size_t to, std::size_t& value) {
    const char* end = text.data() + to;
    const auto [at, error] = std::from_chars(text.data() + from, end, value);
    return error == std::errc() && at == end;
  };
  const bool is_read = equals != std::string::npos &&
                       read(equals + 1, colon == std::string::npos ? text.size() : colon, cell.bytes) &&
                       (colon == std::string::npos || read(colon + 1, text.size(), cell.alignment));
  if (!is_read)
    throw std::invalid_argument(fmt::format("--custom is '{}': give NAME=BYTES or NAME=BYTES:ALIGNMENT", text));
  return cell;
}

}  // namespace shoal::command
