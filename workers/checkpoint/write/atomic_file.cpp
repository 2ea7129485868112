#include <shoal/internal/workers/checkpoint/write/atomic_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/error.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

namespace shoal::detail {
namespace {

constexpr std::size_t kWriteBytes = std::size_t(16) << 20;

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw SystemError(fmt::format("{} {}", what, path.native()), errno,
                    "is there room, and may this process write there? What was saved before is as it was");
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  // No other process has this name, and no other file of this one.
  static std::atomic<unsigned> number{0};
  do {
    beside_ = path_;
    beside_ += fmt::format(".{}.{}.part", ::getpid(), number.fetch_add(1));
    file_ = lift(Fd(::open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)));
  } while (!file_ && errno == EEXIST);
  if (!file_) fail("making the file", beside_);
  SHOAL_KILL_POINT("checkpoint.begun");
}

AtomicFile::~AtomicFile() {
  if (file_) ::unlink(beside_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  // Two pieces at least, so that a test ends a process within a file of any size.
  const std::size_t most = std::min(kWriteBytes, (bytes.size() + 1) / 2);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), std::min(bytes.size(), most));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("writing", path_);
    bytes = bytes.subspan(std::size_t(written));
    SHOAL_KILL_POINT("checkpoint.piece");
  }
}

void AtomicFile::commit() {
  SHOAL_KILL_POINT("checkpoint.written");
  // On disk before it has its name: a machine that stops in between leaves what was there, never a half file.
  if (::fsync(file_.get()) != 0) fail("writing", path_);
  SHOAL_KILL_POINT("checkpoint.synced");
  if (::rename(beside_.c_str(), path_.c_str()) != 0) fail("giving its name to", path_);
  file_.reset();
  SHOAL_KILL_POINT("checkpoint.renamed");
  sync_folder(path_.has_parent_path() ? path_.parent_path() : std::filesystem::path("."));
}

void sync_folder(const std::filesystem::path& folder) {
  const auto fail = [&] {
    throw SystemError(fmt::format("writing the folder {}", folder.native()), errno,
                      "a name in it may be lost if the machine stops now");
  };
  const Fd directory = lift(Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!directory) {
    if (errno != EACCES) fail();
    return;
  }
  // EROFS: a place where others are mounted, in which no name has changed.
  if (::fsync(directory.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != ENOSYS && errno != EROFS) fail();
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path wanted = std::filesystem::absolute(folder, error).lexically_normal();
  if (!wanted.has_filename()) wanted = wanted.parent_path();  // "run1/"
  std::vector<std::filesystem::path> above;                   // each in which one is made
  std::filesystem::path at = wanted;
  do {
    at = at.parent_path();
    above.push_back(at);
  } while (at.has_relative_path() && !std::filesystem::exists(at, error));
  std::filesystem::create_directories(wanted, error);
  if (error) throw SystemError(fmt::format("making the folder {}", folder.native()), error.value());
  for (const std::filesystem::path& each : above) sync_folder(each);
}

}  // namespace shoal::detail
