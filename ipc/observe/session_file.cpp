#include <shoal/internal/ipc/observe/session_file.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace shoal {
namespace {

/// The name that Session::create gives the memory's file. The kernel shows it; its first page says whether it is one.
constexpr std::string_view kLinkStart = "/memfd:shoal-heap";

bool is_heap_file(int folder, const char* name) {
  char target[64];
  const ssize_t size = ::readlinkat(folder, name, target, sizeof target);
  return size > 0 && std::string_view(target, std::size_t(size)).starts_with(kLinkStart);
}

/// Whether [at, at + count * each) lies in [from, to), with numbers that may be anything.
bool fits(std::uint64_t at, std::uint64_t count, std::uint64_t each, std::uint64_t from, std::uint64_t to) {
  return at >= from && at <= to && count <= (to - at) / each;
}

}  // namespace

SessionFile::SessionFile(Fd file) : file_(std::move(file)) {
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) throw SystemError("looking at a session's memory", errno);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  SessionLayout layout{};
  if (!read(0, layout) || layout.magic != SessionLayout::kMagic)
    throw Error("this file is not the memory of a session");
  if (layout.version != SessionLayout::kVersion)
    throw Error(fmt::format(
        "the session was made by another version of shoal: its memory has version {}, this program knows {}",
        layout.version, SessionLayout::kVersion));
  const auto bytes = std::uint64_t(status.st_size);
  const bool sound =
      layout.bytes <= bytes && layout.process_slots == ProcessTag::kSlotCount && layout.data % kExtentBytes == 0 &&
      layout.headers % kHeaderBytes == 0 &&
      fits(layout.processes, ProcessTag::kSlotCount, sizeof(ProcessRecord), sizeof(SessionLayout), layout.activities) &&
      fits(layout.activities, ProcessTag::kSlotCount, sizeof(ActivityRecord), layout.processes, layout.extents) &&
      fits(layout.stacks, ProcessTag::kSlotCount, sizeof(StackRecords), layout.activities, layout.extents) &&
      fits(layout.extents, layout.extent_count, sizeof(ExtentRecord), layout.activities, layout.headers) &&
      fits(layout.headers, layout.extent_count, kHeadersPerExtent * kHeaderBytes, layout.extents, layout.data) &&
      fits(layout.data, layout.extent_count, kExtentBytes, layout.headers, layout.bytes);
  if (!sound) throw Error("the session's first page is damaged");
  plan_ = {layout.processes, layout.activities, layout.stacks,       layout.extents,
           layout.headers,   layout.data,       layout.extent_count, layout.root_pid};
}

bool SessionFile::read(std::uint64_t offset, void* into, std::uint64_t bytes) const {
  if (bytes > left_) {
    left_ = 0;
    return false;
  }
  left_ -= bytes;
  auto* to = static_cast<char*>(into);
  while (bytes > 0) {
    if (offset > std::uint64_t(INT64_MAX)) return false;
    const ssize_t got = ::pread(file_.get(), to, bytes, off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += std::uint64_t(got);
    bytes -= std::uint64_t(got);
  }
  return true;
}

std::uint64_t SessionFile::resident() const {
  struct stat status{};
  return ::fstat(file_.get(), &status) == 0 ? std::uint64_t(status.st_blocks) * 512 : 0;
}

std::optional<SessionFile> SessionFile::of_process(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/fd", pid);
  Fd folder = lift(Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  auto refuse = [&](int error) {
    if (error == ENOENT || error == ESRCH) throw Error(fmt::format("there is no process {}", pid));
    if (error == EACCES || error == EPERM)
      throw Error(
          fmt::format("process {} belongs to another user (or is not dumpable): its session is not shown", pid));
    throw SystemError(fmt::format("looking into {}", path), error);
  };
  if (!folder) refuse(errno);
  const int copy = ::fcntl(folder.get(), F_DUPFD_CLOEXEC, 3);
  DIR* listing = copy < 0 ? nullptr : ::fdopendir(copy);
  if (!listing) refuse(errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(listing))
    if (is_heap_file(folder.get(), entry->d_name)) names.emplace_back(entry->d_name);
  ::closedir(listing);
  for (const std::string& name : names) {
    Fd file = lift(Fd(::openat(folder.get(), name.c_str(), O_RDONLY | O_CLOEXEC)));
    if (file) return SessionFile(std::move(file));
    if (errno != ENOENT) refuse(errno);
  }
  return std::nullopt;
}

}  // namespace shoal
