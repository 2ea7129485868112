#include <shoal/internal/workers/tar/format/tar_sample.h>

#include <fmt/format.h>
#include <shoal/internal/workers/tar/format/tar_header.h>
#include <shoal/internal/workers/tar/format/tar_members.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <utility>

namespace shoal {

const TarPart* TarParts::find(std::string_view extension) const {
  const auto found = std::ranges::find(parts, detail::in_small_letters(extension), &TarPart::extension);
  return found == parts.end() ? nullptr : &*found;
}

namespace detail {

TarParts read_tar_sample(std::span<const std::uint8_t> archive, const std::string& path, std::uint64_t begin,
                         std::uint64_t end) {
  const auto fail = [&](std::uint64_t place, const std::string& what) {
    throw DatasetError(fmt::format("{}: at {}: {}", path, place, what));
  };
  if (begin >= end || end > archive.size()) fail(begin, "no sample; if there is an index of the archive, remove it");
  TarMembers members(archive.first(std::size_t(end)), path, begin);
  TarParts sample;
  while (const auto member = members.next()) {
    const auto name = tar_name(member->name);
    if (!name) continue;
    if (sample.parts.empty()) sample.key = name->key;
    if (name->key != sample.key)
      fail(member->header,
           fmt::format("{:?} is of another sample than {:?}; remove the archive's index", member->name, sample.key));
    std::string extension = in_small_letters(name->extension);
    if (sample.find(extension) != nullptr)
      fail(member->header, fmt::format("{:?} is there twice in one sample", member->name));
    sample.parts.push_back({std::move(extension), member->bytes});
  }
  if (sample.parts.empty()) fail(begin, "a sample without files; remove the archive's index");
  return sample;
}

}  // namespace detail
}  // namespace shoal
