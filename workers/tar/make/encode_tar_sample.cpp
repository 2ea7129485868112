#include <shoal/internal/workers/tar/make/encode_tar_sample.h>

#include <fmt/format.h>
#include <shoal/internal/workers/images/formats/picture_kind.h>
#include <shoal/internal/workers/tar/make/npy.h>
#include <shoal/workers/images/encode.h>

#include <cstring>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <variant>

namespace shoal::detail {
namespace {

struct Stored {
  std::string kind;  // an extension
  std::vector<std::uint8_t> bytes;
};

Stored text(const char* kind, const std::string& value) { return {kind, {value.begin(), value.end()}}; }

Stored stored_tensor(const at::Tensor& tensor, int jpeg_quality) {
  if (tensor.scalar_type() != at::kByte || tensor.dim() != 3 || tensor.size(0) != 3)
    return {"npy", detail::store_npy(tensor)};
  if (jpeg_quality > 0) return {"jpg", encode_jpeg(tensor, jpeg_quality)};
  return {"png", encode_png(tensor)};
}

/// Whether files of this extension are NumPy's.
bool is_npy(std::string_view extension) { return extension.substr(extension.rfind('.') + 1) == "npy"; }

Stored stored(const MemberValue& value, int jpeg_quality) {
  return std::visit(
      [&]<class V>(const V& its) -> Stored {
        if constexpr (std::is_integral_v<V>)
          return text("cls", fmt::format("{}", its));
        else if constexpr (std::is_same_v<V, double>)
          return text("txt", fmt::format("{}", its));
        else if constexpr (std::is_same_v<V, const BetonJson*>)
          return text("json", its->text);
        else if constexpr (std::is_same_v<V, const EncodedImage*>)
          return {picture_kind(its->bytes, its->name) == PictureKind::jpeg ? "jpg" : "png", its->bytes};
        else if constexpr (std::is_same_v<V, const at::Tensor*>)
          return stored_tensor(*its, jpeg_quality);
        else
          return {"bin", {its.begin(), its.end()}};
      },
      value);
}

void put_number(std::vector<std::uint8_t>& bytes, std::uint64_t number) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(&number);
  bytes.insert(bytes.end(), begin, begin + sizeof(number));
}

/// Of a text or bytes.
void put_bytes(std::vector<std::uint8_t>& bytes, const auto& its) {
  put_number(bytes, its.size());
  bytes.insert(bytes.end(), its.begin(), its.end());
}

std::uint64_t take_number(std::span<const std::uint8_t>& bytes) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes = bytes.subspan(sizeof(number));
  return number;
}

std::span<const std::uint8_t> take_bytes(std::span<const std::uint8_t>& bytes) {
  const auto count = std::size_t(take_number(bytes));
  const auto taken = bytes.first(count);
  bytes = bytes.subspan(count);
  return taken;
}

std::string_view take_text(std::span<const std::uint8_t>& bytes) {
  const auto taken = take_bytes(bytes);
  return {reinterpret_cast<const char*>(taken.data()), taken.size()};
}

}  // namespace

// The key and the number of files; of each file the extension and the contents. Before each text its length.
void TarSampleEncoder::append(const SampleValues& values, std::int64_t index, std::vector<std::uint8_t>& bytes) const {
  if (values.all.size() != names.size())
    throw std::invalid_argument(
        fmt::format("TarWriter: a sample of {} values for {} names", values.all.size(), names.size()));
  if (key >= 0)
    put_bytes(bytes, std::get<std::span<const std::uint8_t>>(values.all[std::size_t(key)]));
  else
    put_bytes(bytes, fmt::format("{:06}", index));
  put_number(bytes, values.all.size() - (key >= 0 ? 1 : 0));
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::int64_t(i) == key) continue;
    const MemberValue& value = values.all[i];
    const auto chosen = extensions.find(names[i]);
    // An array that could be a picture is one unless its file's name says otherwise.
    const auto* const tensor = std::get_if<const at::Tensor*>(&value);
    const bool is_array = tensor != nullptr && chosen != extensions.end() && is_npy(chosen->second);
    const Stored file = is_array ? Stored{"npy", store_npy(**tensor)} : stored(value, jpeg_quality);
    std::string extension = fmt::format("{}.{}", names[i], file.kind);
    if (chosen != extensions.end()) extension = chosen->second.empty() ? file.kind : chosen->second;
    put_bytes(bytes, extension);
    put_bytes(bytes, file.bytes);
  }
}

EncodedTarSample take_tar_sample(std::span<const std::uint8_t>& bytes) {
  EncodedTarSample sample{take_text(bytes), {}};
  for (std::uint64_t left = take_number(bytes); left > 0; --left) {
    const std::string_view extension = take_text(bytes);
    sample.files.push_back({extension, take_bytes(bytes)});
  }
  return sample;
}

}  // namespace shoal::detail
