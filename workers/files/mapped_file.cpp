#include <shoal/internal/workers/files/mapped_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/fd.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace shoal::detail {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw DatasetError(fmt::format("{}: can't be {}: {}", path, what, std::strerror(error)));
}

}  // namespace

MappedFile::MappedFile(const std::string& path, const char* kind) {
  const Fd file = lift(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
  if (!file) fail(path, "opened", errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) fail(path, "looked at", errno);
  if (!S_ISREG(status.st_mode)) throw DatasetError(fmt::format("{}: not a regular file", path));
  bytes_ = std::size_t(status.st_size);
  stamp_ = {bytes_, std::int64_t(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
  if (bytes_ == 0) throw DatasetError(fmt::format("{}: no {}: it is empty", path, kind));
  // Shared: private mappings of a file are accounted for per process, though nobody writes.
  void* at = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) fail(path, "mapped", errno);
  at_ = static_cast<std::uint8_t*>(at);
}

MappedFile::~MappedFile() { ::munmap(at_, bytes_); }

void MappedFile::advise(std::uint64_t first, std::uint64_t bytes, int advice) const {
  if (first >= bytes_) return;
  std::uint64_t begin = first / 4096 * 4096;  // madvise refuses any other address
  const std::uint64_t end = begin + std::min<std::uint64_t>(bytes + (first - begin), bytes_ - begin);
  // Of one request Linux reads no more than the device's read-ahead or its largest transfer, and drops the rest.
  const std::uint64_t part = advice == MADV_WILLNEED ? 128U << 10U : end - begin;
  for (; begin < end; begin += part) ::madvise(at_ + begin, std::min(part, end - begin), advice);
}

}  // namespace shoal::detail
