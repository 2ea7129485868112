#include <shoal/internal/workers/tar/write/shard_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/workers/tar/format/tar_header.h>
#include <shoal/internal/workers/tar/format/tar_index.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace shoal::detail {
namespace {

constexpr std::size_t kBuffer = 1U << 20U;
constexpr std::uint64_t kRecord = 10240;  // an archive's length is a multiple of it

}  // namespace

std::uint64_t tar_file_bytes(std::string_view name, std::uint64_t bytes) {
  return tar_headers(name, bytes).size() + tar_blocks(bytes);
}

std::uint64_t tar_archive_bytes(std::uint64_t files) {
  return (files + 2 * kTarBlock + kRecord - 1) / kRecord * kRecord;
}

ShardFile::ShardFile(const std::filesystem::path& path) : path_(path) {
  // As .beton files do it: no data set lists such a name, and no other process has it.
  static std::atomic<unsigned> number{0};
  do {
    beside_ = path.parent_path() / fmt::format(".shoal.{}.{}.part", ::getpid(), number.fetch_add(1));
    file_ = lift(Fd(::open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)));
  } while (!file_ && errno == EEXIST);
  if (!file_) fail("written", errno);
}

ShardFile::~ShardFile() {
  if (!renamed_) ::unlink(beside_.c_str());
}

void ShardFile::check_usable() const {
  if (failed_)
    throw DatasetError(fmt::format("{}: a write of it has failed before; write these archives anew", path_.native()));
}

void ShardFile::fail(const char* what, int error) {
  failed_ = true;
  throw DatasetError(fmt::format("{}: can't be {}: {}", path_.native(), what, std::strerror(error)));
}

void ShardFile::flush() {
  std::span<const std::uint8_t> left(buffer_);
  while (!left.empty()) {
    const ssize_t written = ::write(file_.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("written", errno);
    left = left.subspan(std::size_t(written));
  }
  buffer_.clear();
}

void ShardFile::put(std::span<const std::uint8_t> bytes) {
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kBuffer - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + std::ptrdiff_t(count));
    bytes = bytes.subspan(count);
    if (buffer_.size() == kBuffer) flush();
  }
}

void ShardFile::add_file(std::string_view name, std::span<const std::uint8_t> contents) {
  check_usable();
  const std::string headers = tar_headers(name, contents.size());
  put({reinterpret_cast<const std::uint8_t*>(headers.data()), headers.size()});
  put(contents);
  constexpr std::array<std::uint8_t, kTarBlock> kZeros{};
  put(std::span(kZeros).first(std::size_t(tar_blocks(contents.size()) - contents.size())));
}

void ShardFile::finish() {
  check_usable();
  places_.push_back(bytes_);
  const std::vector<std::uint8_t> zeros(std::size_t(tar_archive_bytes(bytes_) - bytes_));
  put(zeros);
  flush();
  // On disk before it has its name: a machine that stops between the two leaves what was there, never a half file.
  if (::fsync(file_.get()) != 0) fail("written", errno);
  file_.reset();  // it may wait for others, and there may be many
  std::vector<std::uint8_t>().swap(buffer_);
  SHOAL_KILL_POINT("tar.write.whole");
}

void ShardFile::publish(bool with_index) {
  if (::rename(beside_.c_str(), path_.c_str()) != 0) fail("renamed to that", errno);
  renamed_ = true;
  struct stat status{};
  if (!with_index || ::stat(path_.c_str(), &status) != 0) return;
  const FileStamp stamp{std::uint64_t(status.st_size),
                        std::int64_t(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
  write_tar_index(tar_index_files(path_, {}).front(), store_tar_index(places_, stamp));
}

}  // namespace shoal::detail
