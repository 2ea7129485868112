// The files of a tar archive's sample as values: by the member's type, or by the file's extension.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/beton/beton_values.h>
#include <shoal/workers/beton/member_names.h>
#include <shoal/workers/data/named_tensors.h>
#include <shoal/workers/images/decode.h>
#include <shoal/workers/tar/tar_file.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// All files of a sample by their extensions, or of a batch.
using TarTensors = NamedTensors;

namespace detail {

/// A sample, and what errors and choices need.
struct TarSource {
  const TarParts& sample;
  const std::string& archive;
  const std::map<std::string, std::vector<std::string>>& extensions;  // by members
  const DecodeOptions& decode;
  std::uint64_t cut_at = 0;  // see TarArchives::cut_at
};

/// The member's file: one of its extensions, the first that is there; without any the file whose extension is the
/// member's name, or begins with it and a dot. Capitals make no difference. nullptr if there is none.
const TarPart* find_part(const TarSource& source, std::string_view member);
/// Throws DatasetError, which lists the sample's files and says what to do, or says that the archive is cut off.
[[noreturn]] void fail_without_part(const TarSource& source, std::string_view member,
                                    const char* remedy = "TarOptions::extensions says which file is which member's");

// A file as a value. All throw DatasetError, which names archive, file and contents.
/// Of std::int64_t or std::uint64_t.
template <class Number>
Number decode_integer(const TarSource& source, const TarPart& part, Number least, Number most);
double decode_real(const TarSource& source, const TarPart& part);
/// A picture (jpg, jpeg, png), an array (npy), a number (cls, index, id) as int64 of no dimensions; else uint8 [bytes].
at::Tensor decode_tensor(const TarSource& source, const TarPart& part);
/// ARCHIVE: KEY.EXTENSION.
std::string name_of(const TarSource& source, const TarPart& part);

template <class T>
struct PartOf {
  using type = T;
  static constexpr bool kMayBeMissing = false;
};
template <class T>
struct PartOf<std::optional<T>> {
  using type = T;
  static constexpr bool kMayBeMissing = true;
};

/// The compiler's message names this if a file cannot become a member; T of this instantiation is its type.
template <class T>
struct NoPart {
  static_assert(
      sizeof(T) == 0,
      "shoal: a member of this type (T above) can't be a file of a sample: make it a number, a std::string, a "
      "std::vector<std::uint8_t>, an at::Tensor, a BetonJson, an EncodedImage, or an optional of these");
};

template <class T>
T decode_part(const TarSource& source, const TarPart& part) {
  const auto text = [&] { return std::string(part.bytes.begin(), part.bytes.end()); };
  if constexpr (std::integral<T>) {
    using Widest = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return T(decode_integer<Widest>(source, part, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else if constexpr (std::floating_point<T>)
    return T(decode_real(source, part));
  else if constexpr (std::same_as<T, std::string>)
    return text();
  else if constexpr (std::same_as<T, std::vector<std::uint8_t>>)
    return {part.bytes.begin(), part.bytes.end()};
  else if constexpr (std::same_as<T, BetonJson>)
    return {text()};
  else if constexpr (std::same_as<T, EncodedImage>)
    return {{part.bytes.begin(), part.bytes.end()}, name_of(source, part)};
  else if constexpr (std::same_as<T, at::Tensor>)
    return decode_tensor(source, part);
  else
    return NoPart<T>{};
}

template <class Sample>
Sample decode_tar_sample(const TarSource& source) {
  Sample sample{};
  if constexpr (std::same_as<Sample, TarTensors>) {
    for (const TarPart& part : source.sample.parts) sample.emplace(part.extension, decode_tensor(source, part));
  } else {
    constexpr auto kNames = member_names<Sample>();
    auto members = members_of(sample);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto decode_one = [&]<class M>(std::string_view name, M& member) {
        if constexpr (std::same_as<M, std::string>)
          if (name == "key" && !source.extensions.contains("key")) return (void)(member = source.sample.key);
        const TarPart* part = find_part(source, name);
        if (part != nullptr)
          member = decode_part<typename PartOf<M>::type>(source, *part);
        else if (!PartOf<M>::kMayBeMissing)
          fail_without_part(source, name);
      };
      (decode_one(kNames[I], std::get<I>(members)), ...);
    }(std::make_index_sequence<kMembersOf<Sample>>());
  }
  return sample;
}

}  // namespace detail
}  // namespace shoal
