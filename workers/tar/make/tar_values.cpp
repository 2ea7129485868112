#include <shoal/internal/workers/tar/make/tar_values.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/tar/format/tar_members.h>
#include <shoal/internal/workers/tar/make/npy.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <type_traits>

namespace shoal::detail {
namespace {

std::string_view text_of(const TarPart& part) {
  std::string_view text(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
  const auto is_blank = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '\0'; };
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  return text;
}

[[noreturn]] void fail(const TarSource& source, const TarPart& part, const char* what) {
  throw DatasetError(fmt::format("{}: {:?} is no {}", name_of(source, part), text_of(part).substr(0, 60), what));
}

template <class Number>
Number number_of(const TarSource& source, const TarPart& part, const char* what) {
  const std::string_view text = text_of(part);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) fail(source, part, what);
  return number;
}

/// The part behind the last dot: "png" of "seg.png".
std::string_view kind_of(std::string_view extension) { return extension.substr(extension.rfind('.') + 1); }

template <std::size_t N>
bool is_one_of(std::string_view kind, const std::array<std::string_view, N>& kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

}  // namespace

std::string name_of(const TarSource& source, const TarPart& part) {
  return fmt::format("{}: {}.{}", source.archive, source.sample.key, part.extension);
}

const TarPart* find_part(const TarSource& source, std::string_view member) {
  const auto chosen = source.extensions.find(std::string(member));
  if (chosen != source.extensions.end()) {
    for (const std::string& extension : chosen->second)
      if (const TarPart* part = source.sample.find(extension)) return part;
    return nullptr;
  }
  if (const TarPart* part = source.sample.find(member)) return part;
  const std::string begin = in_small_letters(member) + '.';
  const auto named =
      std::ranges::find_if(source.sample.parts, [&](const TarPart& part) { return part.extension.starts_with(begin); });
  return named == source.sample.parts.end() ? nullptr : &*named;
}

void fail_without_part(const TarSource& source, std::string_view member, const char* remedy) {
  std::vector<std::string> there;
  there.reserve(source.sample.parts.size());
  for (const TarPart& part : source.sample.parts) there.push_back(part.extension);
  if (source.cut_at > 0)
    throw DatasetError(fmt::format(
        "{}: {}: the archive ends in the middle of this sample, at byte {}, without an end mark: there is no "
        "file for the member {:?} behind {}; is it cut off?",
        source.archive, source.sample.key, source.cut_at, member, there));
  throw DatasetError(fmt::format("{}: {}: no file for the member {:?} among {}; {}", source.archive, source.sample.key,
                                 member, there, remedy));
}

template <class Number>
Number decode_integer(const TarSource& source, const TarPart& part, Number least, Number most) {
  const auto number = number_of<Number>(source, part, std::is_signed_v<Number> ? "integer" : "integer from 0 on");
  if (number < least || number > most) fail(source, part, "number that the member can have");
  return number;
}
template std::int64_t decode_integer(const TarSource&, const TarPart&, std::int64_t, std::int64_t);
template std::uint64_t decode_integer(const TarSource&, const TarPart&, std::uint64_t, std::uint64_t);

double decode_real(const TarSource& source, const TarPart& part) { return number_of<double>(source, part, "number"); }

at::Tensor decode_tensor(const TarSource& source, const TarPart& part) {
  constexpr std::array<std::string_view, 3> kPictures = {"jpg", "jpeg", "png"};
  constexpr std::array<std::string_view, 4> kNumbers = {"cls", "cls2", "index", "id"};
  const std::string_view kind = kind_of(part.extension);
  if (is_one_of(kind, kPictures)) return decode_image(part.bytes, name_of(source, part), source.decode);
  if (kind == "npy") return parse_npy(part.bytes, name_of(source, part));
  if (is_one_of(kind, kNumbers)) {
    at::Tensor number = at::empty({}, at::TensorOptions(at::kLong));
    *number.mutable_data_ptr<std::int64_t>() = number_of<std::int64_t>(source, part, "integer");
    return number;
  }
  at::Tensor bytes = at::empty({std::int64_t(part.bytes.size())}, at::TensorOptions(at::kByte));
  if (!part.bytes.empty()) std::memcpy(bytes.mutable_data_ptr(), part.bytes.data(), part.bytes.size());
  return bytes;
}

}  // namespace shoal::detail
