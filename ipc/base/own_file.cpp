#include <shoal/internal/ipc/base/own_file.h>

#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace shoal {
namespace {

/// What people would find under that number.
std::string name_of(int descriptor) {
  char target[256];
  const ssize_t size = ::readlink(fmt::format("/proc/self/fd/{}", descriptor).c_str(), target, sizeof target);
  return size < 0 ? "closed" : fmt::format("'{}'", std::string(target, std::size_t(size)));
}

}  // namespace

OwnFile::OwnFile(Fd file, const char* what) noexcept : file_(std::move(file)), what_(what) {
  struct stat status{};
  if (file_ && ::fstat(file_.get(), &status) == 0) device_ = status.st_dev, inode_ = status.st_ino;
}

OwnFile::~OwnFile() {
  if (!is_open()) file_.release();
}

bool OwnFile::is_open() const noexcept {
  struct stat status{};
  return file_ && ::fstat(file_.get(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

int OwnFile::descriptor() const {
  if (!is_open())
    throw Error(
        fmt::format("descriptor {} was {}, and is {} now: this program has closed descriptors that it had not opened. "
                    "Close them before the first use of shoal, or leave those alone that are 'memfd:shoal-...' in "
                    "/proc/self/fd",
                    file_.get(), what_, name_of(file_.get())));
  return file_.get();
}

std::optional<std::uint64_t> OwnFile::resident_bytes() const noexcept {
  struct stat status{};
  if (!file_ || ::fstat(file_.get(), &status) != 0 || status.st_dev != device_ || status.st_ino != inode_)
    return std::nullopt;
  return std::uint64_t(status.st_blocks) * 512;
}

}  // namespace shoal
