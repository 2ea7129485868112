// The exception for faults of a data set's files.
#pragma once

#include <shoal/ipc/error.h>

namespace shoal {

/// A data set on disk is missing or is not what it should be. The message names the file and the value at fault.
class DatasetError : public Error {
 public:
  using Error::Error;
};

}  // namespace shoal
