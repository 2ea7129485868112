// Trainings by DistributedDataParallel and DiLoCo.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace shoal::test {

/// Trains a module for some steps with this rank's data, and another one in this process with all ranks' data. The
/// largest difference of their parameters.
double difference_of_ddp(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

/// The last rank begins a pass and leaves out its gradients. What this rank was told, before all start anew and train on;
/// otherwise what went wrong.
std::string said_of_lost_pass(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

/// Trains by DiLoCo, each host's ranks by DistributedDataParallel, and returns likewise. `host_of`: each rank's host.
double difference_of_diloco(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::vector<int>& host_of);

}  // namespace shoal::test
