#include <shoal/workers/tar/tar_file.h>

#include <fmt/format.h>
#include <shoal/internal/workers/files/mapped_file.h>
#include <shoal/internal/workers/tar/format/tar_index.h>
#include <shoal/internal/workers/tar/format/tar_sample.h>
#include <sys/mman.h>

#include <stdexcept>
#include <utility>

namespace shoal {

struct TarFile::Opened {
  Opened(std::string file, const std::filesystem::path& index_folder)
      : path(std::move(file)), mapping(path, "tar archive"), places(detail::indexed_tar(mapping, path, index_folder)) {}
  std::string path;
  detail::MappedFile mapping;
  detail::TarPlaces places;
};

TarFile::TarFile(const std::filesystem::path& path, const std::filesystem::path& index_folder)
    : opened_(std::make_shared<const Opened>(path.native(), index_folder)) {}

const std::string& TarFile::path() const { return opened_->path; }
std::int64_t TarFile::size() const { return std::int64_t(opened_->places.size()) - 1; }
std::uint64_t TarFile::file_bytes() const { return opened_->mapping.bytes().size(); }
std::span<const std::uint64_t> TarFile::places() const { return opened_->places; }

TarParts TarFile::sample(std::int64_t number) const {
  if (number < 0 || number >= size())
    throw std::out_of_range(fmt::format("{}: sample {}: it has {}", path(), number, size()));
  return detail::read_tar_sample(opened_->mapping.bytes(), path(), places()[std::size_t(number)],
                                 places()[std::size_t(number) + 1]);
}

void TarFile::prefetch(std::uint64_t first, std::uint64_t bytes) const {
  opened_->mapping.advise(first, bytes, MADV_WILLNEED);
}

}  // namespace shoal
