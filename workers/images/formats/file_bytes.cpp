#include <shoal/internal/workers/images/formats/file_bytes.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/fd.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace shoal {

void refuse_file(const std::filesystem::path& path, const char* what, int error) {
  throw DatasetError(fmt::format("{}: can't be {}: {}", path.native(), what, std::strerror(error)));
}

namespace {

Fd open_file(const std::filesystem::path& path, std::size_t& size) {
  Fd file = lift(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
  if (file.get() < 0) refuse_file(path, "opened", errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) refuse_file(path, "looked at", errno);
  if (!S_ISREG(status.st_mode)) throw DatasetError(fmt::format("{}: not a regular file", path.native()));
  size = std::size_t(status.st_size);
  return file;
}

void read_all(const std::filesystem::path& path, const Fd& file, std::span<std::uint8_t> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::size_t most = std::min<std::size_t>(bytes.size() - done, 1U << 30U);
    const ssize_t got = ::read(file.get(), bytes.data() + done, most);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_file(path, "read", errno);
    if (got == 0) {
      throw DatasetError(fmt::format("{}: has {} bytes, not the {} that it had when it was opened", path.native(), done,
                                     bytes.size()));
    }
    done += std::size_t(got);
  }
}

}  // namespace

void read_file(const std::filesystem::path& path, std::vector<std::uint8_t>& bytes) {
  std::size_t size = 0;
  const Fd file = open_file(path, size);
  bytes.resize(size);
  read_all(path, file, bytes);
}

void read_file_into(const std::filesystem::path& path, std::span<std::uint8_t> bytes) {
  std::size_t size = 0;
  const Fd file = open_file(path, size);
  if (size != bytes.size()) {
    throw DatasetError(fmt::format("{}: has {} bytes, {} when its folder was listed; is somebody writing it?",
                                   path.native(), size, bytes.size()));
  }
  read_all(path, file, bytes);
}

}  // namespace shoal
