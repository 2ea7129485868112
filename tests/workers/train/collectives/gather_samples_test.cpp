// Values of an evaluation from all ranks, once for each sample.
#include <shoal/workers/train/gather_samples.h>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/data/sampler.h>
#include <shoal/workers/train/communicator.h>
#include <shoal/workers/train/process_group.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace gather_samples_test {

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// A row [i, 2 i] for each index.
at::Tensor rows_of(const std::vector<std::int64_t>& indices) {
  at::Tensor rows = at::empty({std::int64_t(indices.size()), 2}, at::kLong);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    rows[std::int64_t(i)][0] = indices[i];
    rows[std::int64_t(i)][1] = 2 * indices[i];
  }
  return rows;
}

at::Tensor all_rows(std::int64_t size) {
  const at::Tensor column = at::arange(size);
  return at::stack({column, 2 * column}, 1);
}

template <class Ranks>
void gather_by(Ranks& ranks, int rank, int world) {
  for (std::int64_t size : {1, 2, 3, 7, 9}) {
    const EvaluationSampler exact({.num_replicas = world, .rank = rank}, size);
    require(at::equal(all_gather_samples(ranks, rows_of(exact.indices()), size), all_rows(size)),
            fmt::format("{} samples of an EvaluationSampler", size));
    const DistributedSampler padded({.num_replicas = world, .rank = rank, .shuffle = false}, size);
    require(at::equal(all_gather_samples(ranks, rows_of(padded.indices()), size), all_rows(size)),
            fmt::format("{} samples of a DistributedSampler, some repeated", size));
  }
  // Rank r has r rows of floats.
  const at::Tensor own = at::full({rank, 3}, double(rank)), all = all_gather_rows(ranks, own);
  require(all.size(0) == world * (world - 1) / 2 && all.size(1) == 3, "the number of rows");
  std::int64_t at = 0;
  for (int other = 0; other < world; at += other++)
    require((all.narrow(0, at, other) == other).all().item<bool>(), "a rank's rows");
  // What does not fit on one rank is refused on all, and the group goes on.
  const auto refused = [&](const at::Tensor& rows, std::int64_t size, const std::string& words) {
    try {
      (void)all_gather_samples(ranks, rows, size);
    } catch (const std::invalid_argument& error) {
      return require(std::string(error.what()).find(words) != std::string::npos, error.what());
    }
    throw std::runtime_error("went through: " + words);
  };
  refused(at::zeros({2, rank == 1 ? 2 : 3}), 2 * world, "the rows of rank 1 differ");
  refused(at::zeros({2}, rank == 1 ? at::kFloat : at::kDouble), 2 * world, "the rows of rank 1 differ");
  refused(rank == 1 ? at::scalar_tensor(1.0) : at::zeros({1}), world, "rank 1 gave a tensor without rows");
  refused(at::zeros({rank == 1 ? 1 : 2}), 2 * world, "rank 1 gave 1 rows; its share");
  refused(at::zeros({rank == 1 ? 3 : 2}), 2 * world, "rank 1 gave 3 rows; its share");
  require(all_gather_rows(ranks, at::ones({1})).size(0) == world, "the group does not go on");
}

std::string gather(int rank, ShmGroup group, bool by_process_group) {
  if (by_process_group) {
    auto process_group = init_process_group(group, rank);
    gather_by(process_group, rank, group.world_size());
  } else {
    Communicator ranks = group.join(rank);
    gather_by(ranks, rank, group.world_size());
  }
  return "went through";
}

}  // namespace

TEST_CASE("all_gather_samples: each sample's row once and in order, whatever sampler the ranks had") {
  for (bool by_process_group : {false, true})
    for (int world : {2, 3})
      for (auto& said : spawn({.nprocs = world}, gather, ShmGroup(world), by_process_group))
        CHECK(said == "went through");
}

}  // namespace gather_samples_test
