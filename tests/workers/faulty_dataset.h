// A data set that fails where a test says.
#pragma once

#include <signal.h>

#include <cstdint>
#include <stdexcept>

namespace shoal::test {

/// Throws at one sample, and ends its process at another.
struct Faulty {
  std::int64_t throws_at = -1, dies_at = -1;
  std::int64_t size() const { return 100; }
  std::int64_t get(std::int64_t i) const {
    if (i == throws_at) throw std::runtime_error("this one is no good");
    if (i == dies_at) ::raise(SIGKILL);
    return i;
  }
};

}  // namespace shoal::test
