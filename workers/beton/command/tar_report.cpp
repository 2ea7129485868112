#include <shoal/internal/workers/beton/command/tar_report.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/beton/command/file_report.h>
#include <shoal/internal/workers/beton/command/sha256.h>
#include <shoal/internal/workers/beton/command/values.h>
#include <shoal/internal/workers/beton/format/beton_layout.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/internal/workers/images/formats/png_reader.h>
#include <shoal/internal/workers/tar/format/npy_header.h>
#include <shoal/internal/workers/tar/format/tar_index.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

namespace shoal::command {
namespace {

std::string_view text_of(const TarPart& part) {
  std::string_view text(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

std::string_view kind_of(const TarPart& part) {
  return std::string_view(part.extension).substr(part.extension.rfind('.') + 1);
}

bool is_number(const TarPart& part) {
  const std::string_view kind = kind_of(part), text = text_of(part);
  if (kind != "cls" && kind != "cls2" && kind != "index" && kind != "id") return false;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::string in_quotes(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

bool is_picture(const TarPart& part) {
  const std::string_view kind = kind_of(part);
  return kind == "jpg" || kind == "jpeg" || kind == "png";
}

struct Picture {
  std::string_view mode;  // by its bytes, whatever its name: readers take it for that
  std::int64_t width = 0, height = 0;
  bool has_end = true;  // all pixels are there without it
};

/// Whether there is an end marker behind the last scan, whose codes have no marker among them but those of restarts.
bool has_jpeg_end(std::span<const std::uint8_t> jpeg) {
  constexpr std::uint8_t kMarker = 0xFF, kEnd = 0xD9, kScan = 0xDA;
  for (std::size_t i = jpeg.size(); i > 1; --i)
    if (jpeg[i - 2] == kMarker && (jpeg[i - 1] == kEnd || jpeg[i - 1] == kScan)) return jpeg[i - 1] == kEnd;
  return false;
}

/// A picture's pixels, rows of RGB. Throws DatasetError.
Picture decode(const TarPart& part, const std::string& name, std::vector<std::uint8_t>& pixels) {
  if (!part.bytes.empty() && part.bytes[0] == 0x89) {
    png::Reader reader(part.bytes, name);
    reader.read_header();
    if (reader.height() * reader.width() > detail::kMostJpegPixels)
      throw DatasetError(fmt::format("{}: {} x {} pixels by its header; {} at most", name, reader.width(),
                                     reader.height(), detail::kMostJpegPixels));
    pixels.resize(reader.row_bytes() * std::size_t(reader.height()));
    reader.read_rows(pixels.data());
    return {"png", reader.width(), reader.height(), !reader.has_no_end()};
  }
  const detail::JpegHeader header = detail::jpeg_header(part.bytes, name);
  detail::check_jpeg_size(part.bytes, header.width, header.height, name);
  pixels.resize(std::size_t(header.width * header.height) * 3);
  constexpr int kCmyk = 4;
  (header.components == kCmyk ? detail::decode_cmyk_jpeg_rows : detail::decode_jpeg_rows)(part.bytes, header.width,
                                                                                          header.height, pixels, name);
  return {"jpg", header.width, header.height, has_jpeg_end(part.bytes)};
}

/// An array that has as many bytes as its header says. Throws DatasetError.
detail::NpyArray array_of(const TarPart& part, const std::string& name) {
  detail::NpyArray array = detail::parse_npy_header(part.bytes, name);
  unsigned __int128 bytes = detail::dtype_of_code(array.code).bytes;
  const bool is_known = bytes > 0;  // NumPy has more types than .beton files
  for (const std::int64_t size : array.shape) {
    bytes *= std::uint64_t(size);
    if (bytes > part.bytes.size()) break;
  }
  const bool is_empty = std::ranges::find(array.shape, 0) != array.shape.end();
  if (is_known && (is_empty ? 0 : bytes) != array.elements.size())
    throw DatasetError(fmt::format("{}: {} bytes of elements, which is not what ({}) of {:?} has", name,
                                   array.elements.size(), fmt::join(array.shape, ", "), array.code));
  return array;
}

std::string value_of(const TarPart& part, const std::string& name) {
  const std::string_view kind = kind_of(part);
  if (is_number(part)) return std::string(text_of(part));
  if (kind == "json" && is_json(text_of(part))) return on_one_line(text_of(part));
  if (is_picture(part)) {
    std::vector<std::uint8_t> pixels;
    const Picture picture = decode(part, name, pixels);
    return fmt::format(R"({{"mode":"{}","width":{},"height":{},"sha256":"{}"}})", picture.mode, picture.width,
                       picture.height, sha256(pixels));
  }
  if (kind == "npy") {
    const detail::NpyArray array = array_of(part, name);
    return fmt::format(R"({{"shape":[{}],"dtype":{},"sha256":"{}"}})", fmt::join(array.shape, ","),
                       in_quotes(array.code), sha256(array.elements));
  }
  return fmt::format(R"({{"shape":[{}],"dtype":"|u1","sha256":"{}"}})", part.bytes.size(), sha256(part.bytes));
}

std::string name_of(const TarFile& file, const TarParts& sample, const TarPart& part) {
  return fmt::format("{}: {}.{}", file.path(), sample.key, part.extension);
}

/// Of one archive, up to `most` in all.
void add_faults(const TarFile& file, bool quick, std::size_t most, std::vector<std::string>& faults) {
  std::vector<std::uint8_t> pixels;
  for (std::int64_t i = 0; i < file.size() && faults.size() < most; ++i) try {
      const TarParts sample = file.sample(i);
      for (const TarPart& part : sample.parts) {
        if (faults.size() == most) return;
        const std::string name = name_of(file, sample, part);
        const std::string_view kind = kind_of(part);
        if (is_picture(part) && !quick && !decode(part, name, pixels).has_end)
          faults.push_back(name + ": this picture has all its pixels and no end mark; it may be cut off behind them");
        if (kind == "npy") (void)array_of(part, name);
        if (kind == "json" && !is_json(text_of(part))) faults.push_back(name + ": the text is no JSON");
        if (kind == "cls" && !is_number(part)) faults.push_back(name + ": no number");
      }
    } catch (const DatasetError& error) {
      faults.emplace_back(error.what());
    }
  if (faults.size() < most && file.places().back() == file.file_bytes())
    faults.push_back(file.path() + ": it has no end mark; it may be cut off between two files");
}

}  // namespace

bool is_tar(const std::string& path) {
  if (path.ends_with(".tar")) return true;  // a compressed one, say, gets an error that says so
  std::ifstream in(path, std::ios::binary);
  std::string header(512, '\0');
  in.read(header.data(), std::streamsize(header.size()));
  const auto count = std::size_t(in.gcount());
  detail::refuse_compressed({reinterpret_cast<const std::uint8_t*>(header.data()), count}, path);
  return count == header.size() && std::string_view(header).substr(257, 5) == "ustar";
}

std::string listed(std::span<const std::string> archives) {
  if (archives.size() == 1) return archives.front();
  return fmt::format("{} archives, {} to {}", archives.size(), archives.front(), archives.back());
}

std::string tar_info_text(std::span<const std::string> archives) {
  std::map<std::string, SizeSummary> kinds;
  std::int64_t samples = 0;
  std::uint64_t bytes = 0;
  for (const std::string& path : archives) {
    const TarFile file(path);
    for (std::int64_t i = 0; i < file.size(); ++i)
      for (const TarPart& part : file.sample(i).parts) kinds[part.extension].add(part.bytes.size());
    samples += file.size();
    bytes += file.file_bytes();
  }
  std::string text = fmt::format("{}: {} samples, {} bytes\n", listed(archives), samples, bytes);
  for (const auto& [extension, sizes] : kinds)
    text += fmt::format("  {:<16}  {} files; {} to {} bytes, {} in all\n", extension, sizes.count, sizes.least,
                        sizes.most, sizes.total);
  return text;
}

std::vector<std::string> find_tar_faults(std::span<const std::string> archives, bool quick, std::size_t most,
                                         std::int64_t& samples) {
  std::vector<std::string> faults;
  for (const std::string& path : archives) {
    if (faults.size() >= most) break;
    try {
      const TarFile file(path);
      samples += file.size();
      add_faults(file, quick, most, faults);
    } catch (const DatasetError& error) {
      faults.emplace_back(error.what());
    }
  }
  return faults;
}

std::string tar_line(const ArchivedSample& its, bool json) {
  const TarParts sample = its.file.sample(its.number);
  std::string line = json ? fmt::format(R"({{"index":{},"key":{},"fields":{{)", its.index, in_quotes(sample.key))
                          : fmt::format("{}  {}", its.index, sample.key);
  for (std::size_t i = 0; i < sample.parts.size(); ++i) {
    const TarPart& part = sample.parts[i];
    const std::string value = value_of(part, name_of(its.file, sample, part));
    line += json ? fmt::format("{}{}:{}", i == 0 ? "" : ",", in_quotes(part.extension), value)
                 : fmt::format("  {}={}", part.extension, value);
  }
  return line + (json ? "}}\n" : "\n");
}

}  // namespace shoal::command
