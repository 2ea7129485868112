// The TimeoutError of a collective.
#pragma once

#include <shoal/ipc/error.h>

#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// Also says by number whom was waited for, since its text is for people alone and has other numbers, too.
class RanksLate : public TimeoutError {
 public:
  RanksLate(const std::string& text, std::vector<int> ranks) : TimeoutError(text), ranks_(std::move(ranks)) {}
  const std::vector<int>& ranks() const noexcept { return ranks_; }  ///< in their group

 private:
  std::vector<int> ranks_;
};

}  // namespace shoal
