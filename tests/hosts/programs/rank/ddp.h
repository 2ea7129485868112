// A training by DistributedDataParallel.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal::test {

/// Trains a module for some steps with this rank's data, and another one in this process with all ranks' data. The
/// largest difference of their parameters.
double difference_of_ddp(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace shoal::test
