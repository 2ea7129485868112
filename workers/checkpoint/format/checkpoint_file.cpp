#include <shoal/internal/workers/checkpoint/format/checkpoint_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace shoal::detail {
namespace {

constexpr std::size_t kReadBytes = std::size_t(1) << 20;
// Not blocking: whoever opens a FIFO would else wait for somebody who writes to it. Of files it says nothing.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "no file";
}

}  // namespace

Fd CheckpointFile::open() const {
  Fd file = lift(Fd(::open(path_.c_str(), kOpenFlags)));
  if (!file) throw SystemError(fmt::format("opening the checkpoint {}", path_.native()), errno);
  return file;
}

CheckpointFile::CheckpointFile(std::filesystem::path path) : path_(std::move(path)) {
  file_ = open();
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0)
    throw SystemError(fmt::format("looking at the checkpoint {}", path_.native()), errno);
  if (!S_ISREG(status.st_mode))
    throw CheckpointError(path_, CheckpointError::kNoOffset, "file",
                          fmt::format("it is {} under a shard's name: remove it", kind_of(status.st_mode)));
  const auto bytes = std::uint64_t(status.st_size);
  std::array<std::byte, kCheckpointHeaderBytes> first;
  const auto header = std::span(first).first(std::min<std::uint64_t>(bytes, first.size()));
  read_at(file_.get(), 0, header, "header");
  std::vector<std::byte> head(head_bytes_of(header, bytes, path_));
  read_at(file_.get(), 0, head, "index");
  head_ = parse_head(head, bytes, path_);
  by_name_.reserve(head_.entries.size());
  for (const CheckpointEntry& entry : head_.entries) by_name_.emplace(entry.name, &entry);
}

const CheckpointEntry* CheckpointFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

void CheckpointFile::read_at(int file, std::uint64_t offset, std::span<std::byte> to, std::string_view field) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(file, to.data(), std::min(to.size(), std::size_t(1) << 30), off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw SystemError(fmt::format("reading {} of the checkpoint {}", field, path_.native()), errno);
    if (got == 0) throw CheckpointError(path_, offset, std::string(field), "the file ends within it");
    to = to.subspan(std::size_t(got));
    offset += std::uint64_t(got);
  }
}

void CheckpointFile::fail_checksum(const CheckpointEntry& entry) const {
  throw CheckpointError(path_, entry.offset, fmt::format("entry '{}'", entry.name),
                        "its bytes are not those that were written: load an earlier step, as load() does");
}

void CheckpointFile::read(const CheckpointEntry& entry, std::span<std::byte> to) const {
  const Fd again = file_ ? Fd() : open();
  const int file = file_ ? file_.get() : again.get();
  read_at(file, entry.offset, to, entry.name);
  std::array<std::byte, kCheckpointAlignment> rest;
  const auto padding = std::span(rest).first(checkpoint_aligned(entry.bytes) - entry.bytes);
  read_at(file, entry.offset + entry.bytes, padding, entry.name);
  if (checkpoint_checksum(padding, checkpoint_checksum(to)) != entry.checksum) fail_checksum(entry);
}

void CheckpointFile::verify() const {
  const Fd again = file_ ? Fd() : open();
  const int file = file_ ? file_.get() : again.get();
  std::vector<std::byte> buffer(kReadBytes);
  for (const CheckpointEntry& entry : entries()) {
    std::uint32_t sum = 0;
    const std::uint64_t end = entry.offset + checkpoint_aligned(entry.bytes);
    for (std::uint64_t at = entry.offset; at < end;) {
      const auto piece = std::span(buffer).first(std::min<std::uint64_t>(end - at, buffer.size()));
      read_at(file, at, piece, entry.name);
      sum = checkpoint_checksum(piece, sum);
      at += piece.size();
    }
    if (sum != entry.checksum) fail_checksum(entry);
  }
}

std::optional<std::uint64_t> run_of_checkpoint(const std::filesystem::path& path) {
  const Fd file = lift(Fd(::open(path.c_str(), kOpenFlags)));
  std::array<std::byte, kCheckpointHeaderBytes> header;  // of anything but a file pread() reads none
  if (!file || ::pread(file.get(), header.data(), header.size(), 0) != ssize_t(header.size())) return std::nullopt;
  return run_in_header(header);
}

}  // namespace shoal::detail
