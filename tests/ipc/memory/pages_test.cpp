// Pages of a mapping that go back to the system, whatever has become of the file's descriptor.
#include <shoal/internal/ipc/memory/pages.h>

#include <errno.h>
#include <fcntl.h>
#include <shoal/ipc/fd.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

constexpr std::size_t kBytes = 1 << 20;

/// A mapped memfd, full of sevens.
struct Filled {
  Filled() : file(::memfd_create("pages", MFD_CLOEXEC)) {
    REQUIRE(::ftruncate(file.get(), kBytes) == 0);
    void* at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    REQUIRE(at != MAP_FAILED);
    bytes = static_cast<std::byte*>(at);
    ::memset(bytes, 7, kBytes);
  }
  ~Filled() { ::munmap(bytes, kBytes); }

  std::size_t resident() const {
    struct stat status{};
    REQUIRE(::fstat(file.get(), &status) == 0);
    return std::size_t(status.st_blocks) * 512;
  }

  Fd file;
  std::byte* bytes = nullptr;
};

}  // namespace

TEST_CASE("pages: given back, they are gone from the file, and its length stays") {
  Filled memory;
  REQUIRE(memory.resident() == kBytes);
  CHECK(give_back_pages(memory.bytes + kBytes / 2, kBytes / 4));
  CHECK(memory.resident() == kBytes * 3 / 4);
  CHECK(memory.bytes[kBytes / 2] == std::byte(0));
  CHECK(memory.bytes[kBytes / 2 - 1] == std::byte(7));
  CHECK(memory.bytes[kBytes * 3 / 4] == std::byte(7));
}

TEST_CASE("pages: where they are locked, the kernel's refusal is not taken for done") {
  Filled memory;
  // Not mlock(), which sanitizers replace by one that does nothing.
  if (::syscall(SYS_mlock, memory.bytes, kBytes / 4) != 0) return;  // RLIMIT_MEMLOCK
  errno = 0;
  CHECK_FALSE(give_back_pages(memory.bytes, kBytes / 4));
  CHECK(errno == 0);
  CHECK(memory.resident() == kBytes);
  CHECK(memory.bytes[0] == std::byte(7));
}

TEST_CASE("pages: a file that has taken the descriptor's number keeps its bytes") {
  Filled memory;
  Fd other(::memfd_create("other", MFD_CLOEXEC));
  std::vector<char> bytes(kBytes, 'x');
  REQUIRE(::write(other.get(), bytes.data(), kBytes) == ssize_t(kBytes));
  const Fd kept(::fcntl(memory.file.get(), F_DUPFD_CLOEXEC, 3));
  REQUIRE(::dup3(other.get(), memory.file.get(), O_CLOEXEC) >= 0);
  CHECK(give_back_pages(memory.bytes, kBytes));
  CHECK(memory.resident() == kBytes);  // the other file's by now
  REQUIRE(::pread(other.get(), bytes.data(), kBytes, 0) == ssize_t(kBytes));
  CHECK(std::count(bytes.begin(), bytes.end(), 'x') == std::ptrdiff_t(kBytes));
  struct stat status{};
  REQUIRE(::fstat(kept.get(), &status) == 0);
  CHECK(status.st_blocks == 0);
}
