// The exception for samples that cannot be written.
#pragma once

#include <shoal/ipc/error.h>

#include <cstdint>
#include <string>

namespace shoal {

/// Writing a data set ended since a sample could not be written: reading or encoding it threw, or its worker died. What
/// that threw is nested.
class SampleWriteFailed : public Error {
 public:
  /// Of the sample with this index.
  SampleWriteFailed(const std::string& what, std::int64_t index) : Error(what), index_(index) {}
  std::int64_t index() const noexcept { return index_; }  ///< of the sample, in the data set

 private:
  std::int64_t index_;
};

}  // namespace shoal
