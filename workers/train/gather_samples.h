// Values of an evaluation from all ranks, exactly once each.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

class Communicator;

/// Collective: all ranks' rows (slices along the first dimension), those of rank 0 first. Ranks may have different
/// numbers of rows, also none; the rest of the shape and the type are the same, otherwise all get
/// CollectiveMismatch. PeerDied, TimeoutError as for any collective.
at::Tensor all_gather_rows(Communicator& ranks, const at::Tensor& rows);
/// The same, by a process group.
at::Tensor all_gather_rows(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const at::Tensor& rows);

/// Collective: one row for each sample of a data set of `dataset_size` samples, in its order. Each rank gives a row for
/// each sample that it got from an EvaluationSampler, or a DistributedSampler without shuffle: of those that the latter
/// repeats to make all shares equal, the first is taken. So a metric of the result is exact. Throws
/// CollectiveMismatch on all ranks if some have too few rows, or too many.
///
///   at::Tensor right = shoal::all_gather_samples(process_group, (output.argmax(1) == labels), data.size());
///   double accuracy = right.to(at::kDouble).mean().item<double>();
at::Tensor all_gather_samples(Communicator& ranks, const at::Tensor& rows, std::int64_t dataset_size);
/// The same, by a process group.
at::Tensor all_gather_samples(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const at::Tensor& rows,
                              std::int64_t dataset_size);

}  // namespace shoal
