// From a sample to the files of a tar archive, in any process.
#pragma once

#include <shoal/internal/workers/beton/make/sample_values.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal::detail {

/// Makes files of samples. A plain aggregate, so it crosses to workers; its bytes depend on the sample and its index alone.
struct TarSampleEncoder {
  std::vector<std::string> names;                 // of the members
  std::map<std::string, std::string> extensions;  // see TarWriterOptions
  int jpeg_quality = 0;
  std::int64_t key = -1;  // which member is the sample's key; -1: the index is

  /// Appends what take_tar_sample takes of one sample. Throws std::invalid_argument for values that no file can be made
  /// of, and if they are not as many as the names.
  void append(const SampleValues& values, std::int64_t index, std::vector<std::uint8_t>& bytes) const;
};

/// Which member of an aggregate is the sample's key, as for readers: a std::string `key`; -1: none.
template <class Sample>
constexpr std::int64_t key_member() {
  std::int64_t found = -1;
  if constexpr (!OneValue<Sample> && !TupleLike<Sample> && !std::same_as<Sample, BetonRow>) {
    using Members = decltype(members_of(std::declval<Sample&>()));
    constexpr auto kNames = member_names<Sample>();
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((std::same_as<std::remove_cvref_t<std::tuple_element_t<I, Members>>, std::string> && kNames[I] == "key"
            ? void(found = std::int64_t(I))
            : void()),
       ...);
    }(std::make_index_sequence<kMembersOf<Sample>>());
  }
  return found;
}

/// One sample's files; they refer to the bytes.
struct EncodedTarSample {
  struct File {
    std::string_view extension;
    std::span<const std::uint8_t> contents;
  };
  std::string_view key;
  std::vector<File> files;
};
/// Takes the first sample off the front of what append() has made.
EncodedTarSample take_tar_sample(std::span<const std::uint8_t>& bytes);

}  // namespace shoal::detail
