#include <shoal/internal/workers/tar/format/tar_index.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/workers/tar/format/tar_header.h>
#include <shoal/internal/workers/tar/format/tar_members.h>
#include <shoal/ipc/fd.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>

namespace shoal::detail {
namespace {

// An index: magic, hash of what follows, the archive's bytes and time, the number of places, the places. Little-endian.
constexpr std::string_view kIndexMagic = "shoaltar";
constexpr std::size_t kNumbersBefore = 5;  // the magic is the first

std::uint64_t number_at(std::span<const std::uint8_t> bytes, std::size_t number) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + 8 * number, 8);
  return value;
}

/// FNV-1a over words.
std::uint64_t hash_of(std::span<const std::uint8_t> bytes) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (std::size_t i = 0; i < bytes.size() / 8; ++i) hash = (hash ^ number_at(bytes, i)) * 0x100000001B3;
  return hash;
}

/// Empty for a file that is not there or cannot be read.
std::vector<std::uint8_t> bytes_of(const std::filesystem::path& path) {
  const Fd file = lift(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  std::vector<std::uint8_t> bytes(std::size_t(status.st_size));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {};
    done += std::size_t(count);
  }
  return bytes;
}

/// Held by one process at a time, where the file system has locks; it ends with the descriptor.
Fd lock_of(const std::string& path) {
  Fd file = lift(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
  while (file && ::flock(file.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return file;
}

}  // namespace

void refuse_compressed(std::span<const std::uint8_t> archive, const std::string& path) {
  struct Magic {
    std::string_view bytes, name, command;
  };
  constexpr std::array<Magic, 4> kMagics = {{{"\x1f\x8b", "gzip", "gunzip"},
                                             {"\x28\xb5\x2f\xfd", "zstd", "unzstd"},
                                             {"BZh", "bzip2", "bunzip2"},
                                             {"\xfd\x37zXZ", "xz", "unxz"}}};
  const std::string_view text(reinterpret_cast<const char*>(archive.data()), archive.size());
  for (const Magic& magic : kMagics)
    if (text.starts_with(magic.bytes))
      throw DatasetError(
          fmt::format("{}: compressed by {}; samples in it cannot be found, and pictures do not get "
                      "smaller by it: {} it",
                      path, magic.name, magic.command));
}

TarPlaces find_tar_samples(std::span<const std::uint8_t> archive, const std::string& path) {
  refuse_compressed(archive, path);
  TarMembers members(archive, path);
  TarPlaces places;
  std::string key;
  while (const auto member = members.next()) {
    const auto name = tar_name(member->name);
    if (!name || (!places.empty() && name->key == key)) continue;
    key = name->key;
    places.push_back(member->header);
  }
  if (places.empty())
    throw DatasetError(path + ": no samples: no file in it has a name like 000001.jpg, key and extension");
  places.push_back(members.place());
  return places;
}

std::vector<std::uint8_t> store_tar_index(const TarPlaces& places, const FileStamp& archive) {
  std::vector<std::uint8_t> bytes(8 * (kNumbersBefore + places.size()));
  std::memcpy(bytes.data(), kIndexMagic.data(), 8);
  const auto store = [&](std::size_t number, std::uint64_t value) {
    std::memcpy(bytes.data() + 8 * number, &value, 8);
  };
  store(2, archive.bytes);
  store(3, std::uint64_t(archive.modified));
  store(4, places.size());
  for (std::size_t i = 0; i < places.size(); ++i) store(kNumbersBefore + i, places[i]);
  store(1, hash_of(std::span(bytes).subspan(16)));
  return bytes;
}

std::optional<TarPlaces> load_tar_index(std::span<const std::uint8_t> bytes, const FileStamp& archive) {
  if (bytes.size() < 8 * (kNumbersBefore + 2) || bytes.size() % 8 != 0 ||
      std::memcmp(bytes.data(), kIndexMagic.data(), 8) != 0)
    return std::nullopt;
  const FileStamp stamp{number_at(bytes, 2), std::int64_t(number_at(bytes, 3))};
  if (number_at(bytes, 1) != hash_of(bytes.subspan(16)) || stamp != archive ||
      number_at(bytes, 4) != bytes.size() / 8 - kNumbersBefore)
    return std::nullopt;
  TarPlaces places(bytes.size() / 8 - kNumbersBefore);
  std::memcpy(places.data(), bytes.data() + 8 * kNumbersBefore, 8 * places.size());
  const bool is_increasing = std::ranges::adjacent_find(places, std::greater_equal<>()) == places.end();
  if (!is_increasing || places.back() > archive.bytes) return std::nullopt;
  return places;
}

std::vector<std::filesystem::path> tar_index_files(const std::filesystem::path& archive,
                                                   const std::filesystem::path& folder) {
  const std::string name = archive.filename().native() + ".index";
  const std::string whole = std::filesystem::absolute(archive).lexically_normal().native();
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : whole) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  const std::string unique = fmt::format("{:016x}-{}", hash, name);
  if (!folder.empty()) return {folder / unique};
  std::vector<std::filesystem::path> files = {archive.parent_path() / name};
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/')
    files.push_back(std::filesystem::path(cache) / "shoal/tar" / unique);
  else if (home != nullptr && *home == '/')
    files.push_back(std::filesystem::path(home) / ".cache/shoal/tar" / unique);
  return files;
}

bool write_tar_index(const std::filesystem::path& file, std::span<const std::uint8_t> bytes) {
  static std::atomic<unsigned> number{0};
  std::error_code error;
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  std::filesystem::create_directories(folder, error);
  const auto beside = folder / fmt::format(".shoal.{}.{}.part", ::getpid(), number.fetch_add(1));
  std::ofstream out(beside, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  out.close();
  if (out) std::filesystem::rename(beside, file, error);
  if (out && !error) return true;
  std::filesystem::remove(beside, error);
  return false;
}

TarPlaces indexed_tar(const MappedFile& archive, const std::string& path, const std::filesystem::path& folder) {
  const auto files = tar_index_files(path, folder);
  const auto look = [&]() -> std::optional<TarPlaces> {
    for (const auto& file : files)
      if (auto places = load_tar_index(bytes_of(file), archive.stamp())) return places;
    return std::nullopt;
  };
  if (auto places = look()) return *std::move(places);
  const Fd lock = lock_of(path);
  if (auto places = look()) return *std::move(places);  // of a process that was quicker
  const TarPlaces places = find_tar_samples(archive.bytes(), path);
  const auto bytes = store_tar_index(places, archive.stamp());
  for (const auto& file : files)
    if (write_tar_index(file, bytes)) break;
  return places;
}

}  // namespace shoal::detail
