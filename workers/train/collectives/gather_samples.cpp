#include <shoal/workers/train/gather_samples.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <shoal/workers/train/communicator.h>
#include <shoal/workers/train/tensor_collectives.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace shoal {
namespace {

/// All ranks' tensors of one shape and type.
using Gather = std::function<std::vector<at::Tensor>(const at::Tensor&)>;

Gather gather_of(Communicator& ranks) {
  return [&ranks](const at::Tensor& own) { return all_gather(ranks, own); };
}

Gather gather_of(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
  return [&process_group](const at::Tensor& own) {
    std::vector<std::vector<at::Tensor>> all(1);
    for (int rank = 0; rank < process_group->getSize(); ++rank) all[0].push_back(at::empty(own.sizes(), own.options()));
    std::vector<at::Tensor> input{own};
    process_group->allgather(all, input)->wait();
    return all[0];
  };
}

std::vector<at::Tensor> gather_parts(const Gather& gather, const at::Tensor& rows) {
  // What does not fit on one rank is refused on all of them, by what it says here.
  constexpr std::int64_t kNone = -1;
  const bool fits = rows.defined() && rows.dim() >= 1;
  at::Tensor own = at::empty({3}, at::kLong);
  auto* words = own.data_ptr<std::int64_t>();
  words[0] = fits ? rows.size(0) : kNone;
  words[1] = fits ? int(rows.scalar_type()) : kNone;
  words[2] = 17;
  if (fits)
    for (const std::int64_t size : rows.sizes().slice(1)) words[2] = words[2] * 1000003 + size;
  std::vector<std::int64_t> counts;
  const std::vector<at::Tensor> said = gather(own);
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    const auto* theirs = said[rank].data_ptr<std::int64_t>();
    const auto* first = said[0].data_ptr<std::int64_t>();
    if (theirs[0] == kNone)
      throw CollectiveMismatch(fmt::format("all_gather_rows: rank {} gave a tensor without rows", rank));
    if (theirs[1] != first[1] || theirs[2] != first[2])
      throw CollectiveMismatch(
          fmt::format("all_gather_rows: the rows of rank {} differ from those of rank 0 in type or shape", rank));
    counts.push_back(theirs[0]);
  }
  const std::int64_t most = std::ranges::max(counts);
  std::vector<std::int64_t> sizes = rows.sizes().vec();
  sizes[0] = most;
  at::Tensor padded = rows.detach();
  if (rows.size(0) != most) {
    padded = at::zeros(sizes, rows.options().requires_grad(false));
    padded.narrow(0, 0, rows.size(0)).copy_(rows.detach());
  }
  std::vector<at::Tensor> parts = gather(padded.contiguous());
  for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank] = parts[rank].narrow(0, 0, counts[rank]);
  return parts;
}

at::Tensor in_order(const std::vector<at::Tensor>& parts, std::int64_t dataset_size) {
  const auto ranks = std::int64_t(parts.size());
  std::vector<std::int64_t> sizes = parts[0].sizes().vec();
  sizes[0] = dataset_size;
  at::Tensor whole = at::empty(sizes, parts[0].options());
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const at::Tensor& part = parts[std::size_t(rank)];
    // Sample i is the sample i / ranks of rank i % ranks.
    const std::int64_t share = rank < dataset_size ? (dataset_size - rank + ranks - 1) / ranks : 0;
    const std::int64_t padded = (dataset_size + ranks - 1) / ranks;
    if (part.size(0) < share || part.size(0) > padded)
      throw CollectiveMismatch(fmt::format("all_gather_samples: rank {} gave {} rows; its share of {} samples is {}{}",
                                           rank, part.size(0), dataset_size, share,
                                           padded == share ? "" : fmt::format(", or {} with a repeated one", padded)));
    if (share > 0) whole.slice(0, rank, dataset_size, ranks).copy_(part.narrow(0, 0, share));
  }
  return whole;
}

}  // namespace

at::Tensor all_gather_rows(Communicator& ranks, const at::Tensor& rows) {
  return at::cat(gather_parts(gather_of(ranks), rows));
}

at::Tensor all_gather_rows(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const at::Tensor& rows) {
  return at::cat(gather_parts(gather_of(process_group), rows));
}

at::Tensor all_gather_samples(Communicator& ranks, const at::Tensor& rows, std::int64_t dataset_size) {
  return in_order(gather_parts(gather_of(ranks), rows), dataset_size);
}

at::Tensor all_gather_samples(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const at::Tensor& rows,
                              std::int64_t dataset_size) {
  return in_order(gather_parts(gather_of(process_group), rows), dataset_size);
}

}  // namespace shoal
