// What is left until a deadline, as poll() and stores take it.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>

#include <algorithm>
#include <chrono>

namespace shoal {

/// At least a millisecond, since 0 means other things, and at most a day.
inline std::chrono::milliseconds left_of(Deadline deadline) {
  using std::chrono::milliseconds;
  return std::max(std::chrono::ceil<milliseconds>(deadline.left(std::chrono::hours(24))), milliseconds(1));
}

}  // namespace shoal
