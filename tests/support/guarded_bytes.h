// Memory in which a byte too far is seen, without a sanitizer.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "tests/support/catch.h"

namespace shoal::test {

/// Memory that ends at a page that nobody may touch.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size) {
    const auto page = std::size_t(::sysconf(_SC_PAGESIZE));
    pages_ = (size + page - 1) / page * page;
    memory_ = ::mmap(nullptr, pages_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
    REQUIRE(::mprotect(static_cast<std::uint8_t*>(memory_) + pages_, page, PROT_NONE) == 0);
    mapped_ = pages_ + page;
    bytes_ = static_cast<std::uint8_t*>(memory_) + pages_ - size;
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { ::munmap(memory_, mapped_); }
  std::uint8_t* get() const { return bytes_; }

 private:
  void* memory_;
  std::size_t pages_, mapped_;
  std::uint8_t* bytes_;
};

}  // namespace shoal::test
