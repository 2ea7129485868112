// How long somebody waited, as people read it.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>

namespace shoal {

inline std::string text_of(std::chrono::nanoseconds time) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return milliseconds < 10'000 ? fmt::format("{} ms", milliseconds) : fmt::format("{} s", milliseconds / 1000);
}

}  // namespace shoal
