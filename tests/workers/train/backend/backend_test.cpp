#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/process_group.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/backend/premul_sum.h"

using namespace shoal;

namespace backend_test {

namespace {

using Tensors = std::vector<at::Tensor>;
constexpr int kWorld = 3;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Rank's own: contiguous, a transposed view, or in the heap.
at::Tensor make(int rank, int kind, std::int64_t rows = 50) {
  at::Tensor values = torch::arange(rows * 40, at::kFloat).view({rows, 40}) * (rank + 1);
  if (kind == 1) return values.t().contiguous().t();
  if (kind == 2) return empty_shared({rows, 40}).copy_(values);
  return values;
}

int all_operations(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  auto backend = process_group->getBackend(c10::kCPU);
  require(backend->getBackendName() == "shm", "the backend's name");
  int checked = 0;
  auto check = [&](const std::string& what, const at::Tensor& got, const at::Tensor& wanted) {
    require(torch::equal(got, wanted), fmt::format("{} is wrong on rank {}", what, rank));
    ++checked;
  };
  const at::Tensor one = make(0, 0);
  for (int kind : {0, 1, 2}) {
    Tensors own{make(rank, kind)};
    auto work = process_group->allreduce(own);
    require(work->wait() && work->isCompleted() && work->isSuccess(), "the work is not done");
    check("allreduce", own[0], one * 6);
    check("the work's result", work->result().at(0), one * 6);
    check("the future", work->getFuture()->value().toTensorVector().at(0), one * 6);
    using Op = c10d::ReduceOp;
    for (auto [op, factor] : {std::pair{Op::AVG, 2.f}, {Op::MAX, 3.f}, {Op::MIN, 1.f}}) {
      own = {make(rank, kind)};
      process_group->allreduce(own, {.reduceOp = op})->wait();
      check("allreduce by another operation", own[0], one * factor);
    }
    own = {make(rank, kind), make(rank, kind) + 1};
    process_group->allreduce_coalesced(own)->wait();
    check("allreduce_coalesced", own[1], one * 6 + kWorld);

    own = {make(rank, kind)};
    process_group->broadcast(own, {.rootRank = 2})->wait();
    check("broadcast", own[0], one * 3);
    own = {make(rank, kind)};
    process_group->reduce(own, {.reduceOp = Op::SUM, .rootRank = 1})->wait();
    check("reduce", own[0], rank == 1 ? one * 6 : one * (rank + 1));

    own = {make(rank, kind)};
    std::vector<Tensors> lists{{torch::zeros({50, 40}), torch::zeros({40, 50}).t(), torch::zeros({50, 40})}};
    process_group->allgather(lists, own)->wait();
    for (int other = 0; other < kWorld; ++other) check("allgather", lists[0][std::size_t(other)], one * (other + 1));
    std::vector<Tensors> at_root;
    if (rank == 1) at_root.push_back({torch::zeros({50, 40}), torch::zeros({50, 40}), torch::zeros({50, 40})});
    process_group->gather(at_root, own, {.rootRank = 1})->wait();
    if (rank == 1)
      for (int other = 0; other < kWorld; ++other) check("gather", at_root[0][std::size_t(other)], one * (other + 1));

    at::Tensor whole = torch::zeros({150, 40});
    backend->_allgather_base(whole, own[0])->wait();
    check("_allgather_base", whole, torch::cat({one, one * 2, one * 3}));

    at::Tensor input = make(rank, kind == 1 ? 0 : kind, 150), part = make(rank, kind);
    backend->_reduce_scatter_base(part, input)->wait();
    check("_reduce_scatter_base", part, make(0, 0, 150).narrow(0, rank * 50, 50) * 6);
    std::vector<Tensors> pieces{{make(rank, kind), make(rank, kind) + 1, make(rank, kind) + 2}};
    Tensors result{torch::zeros({50, 40})};
    process_group->reduce_scatter(result, pieces)->wait();
    check("reduce_scatter", result[0], one * 6 + kWorld * rank);
    std::vector<Tensors> to_scatter;
    if (rank == 2) to_scatter = pieces;
    process_group->scatter(result, to_scatter, {.rootRank = 2})->wait();
    check("scatter", result[0], one * 3 + rank);
    own = {torch::cat({one, one, one}) * (rank + 1)};
    whole = torch::zeros({150, 40});
    std::vector<std::int64_t> equal;
    backend->alltoall_base(whole, own[0], equal, equal)->wait();
    check("alltoall_base", whole, torch::cat({one, one * 2, one * 3}));
    // Rank r sends 10 (r + 1) rows to each: so it gets 10 from rank 0, 20 from rank 1, 30 from rank 2.
    std::vector<std::int64_t> from{10, 20, 30}, to(kWorld, 10 * (rank + 1));
    at::Tensor sixty = torch::zeros({60, 40}), rows = torch::full({30 * (rank + 1), 40}, rank + 1.f);
    backend->alltoall_base(sixty, rows, from, to)->wait();
    check("alltoall_base of unequal parts", sixty,
          torch::cat({torch::full({10, 40}, 1.f), torch::full({20, 40}, 2.f), torch::full({30, 40}, 3.f)}));
    Tensors outgoing{make(rank, kind), make(rank, kind) + 1, (make(rank, kind) + 2).narrow(0, 0, 7)};
    Tensors incoming(kWorld, torch::Tensor());
    for (at::Tensor& tensor : incoming) tensor = rank == 2 ? torch::zeros({7, 40}) : torch::zeros({40, 50}).t();
    process_group->alltoall(incoming, outgoing)->wait();
    for (int other = 0; other < kWorld; ++other) {
      at::Tensor wanted = one * (other + 1) + rank;
      check("alltoall", incoming[std::size_t(other)], rank == 2 ? wanted.narrow(0, 0, 7) : wanted);
    }
    process_group->barrier()->wait();
  }
  return checked;
}

std::vector<std::string> refusals(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  auto backend = process_group->getBackend(c10::kCPU);
  std::vector<std::string> said;
  auto refuse = [&](auto&& call) {
    try {
      call();
      said.push_back("went through");
    } catch (const std::exception& error) {
      said.push_back(error.what());
    }
  };
  Tensors sparse{torch::eye(3).to_sparse()}, two{torch::ones(1), torch::ones(1)}, one{torch::ones(4)},
      none{at::Tensor()}, whole{torch::ones(4, at::kInt)};
  refuse([&] { backend->broadcast(sparse); });
  refuse([&] { backend->allreduce_sparse(one); });
  refuse([&] { backend->allreduce(two); });
  refuse([&] { backend->allreduce(none); });
  refuse([&] { backend->allreduce(whole, {.reduceOp = test::premul_sum(2.0)}); });
  refuse([&] { backend->send(one, 0, 0); });
  at::Tensor short_output = torch::zeros({3});
  refuse([&] { backend->_allgather_base(short_output, one[0]); });
  std::vector<Tensors> wrong_type{{torch::zeros({4}, at::kLong)}};
  refuse([&] { backend->allgather(wrong_type, one); });
  // Arguments that c10d has and a rank with one tensor has no use for.
  refuse([&] { process_group->broadcast(one, {.rootTensor = 1}); });
  refuse([&] { process_group->reduce(one, {.rootTensor = -1}); });
  Tensors mixed{torch::ones(2), torch::ones(2, at::kDouble)};
  refuse([&] { process_group->allreduce_coalesced(mixed); });
  // The group is as it was.
  process_group->allreduce(one)->wait();
  said.push_back(fmt::format("{}", one[0].sum().item<float>()));
  return said;
}

}  // namespace

TEST_CASE("backend shm: every operation does through c10d what it says, for tensors of all kinds") {
  for (int checked : spawn({.nprocs = kWorld}, all_operations, ShmGroup(kWorld))) CHECK(checked >= 3 * 15);
}

TEST_CASE("backend shm: what it cannot do is refused by name, and it can be used on") {
  auto said = spawn({.nprocs = 1}, refusals, ShmGroup(1))[0];
  REQUIRE(said.size() == 12);
  CHECK_THAT(said[0], ContainsSubstring("broadcast of a Sparse tensor") && ContainsSubstring("to_dense()"));
  CHECK_THAT(said[1], ContainsSubstring("allreduce_sparse of a Strided tensor: give a sparse (COO) tensor"));
  CHECK_THAT(said[2], ContainsSubstring("allreduce of 2 tensors at once"));
  CHECK_THAT(said[3], ContainsSubstring("allreduce of an undefined tensor"));
  CHECK_THAT(said[4], ContainsSubstring("premul_sum of Int elements: the operation is not defined for this type"));
  CHECK_THAT(said[5], ContainsSubstring("send: rank 0 is this rank itself"));
  CHECK_THAT(said[6], ContainsSubstring("1 times 4 Float, this one has 3"));
  CHECK_THAT(said[7], ContainsSubstring("an output of 4 Long for an input of 4 Float"));
  CHECK_THAT(said[8], ContainsSubstring("broadcast: root tensor 1: a rank has one, number 0"));
  CHECK_THAT(said[9], ContainsSubstring("reduce: root tensor -1: a rank has one, number 0"));
  CHECK_THAT(said[10], ContainsSubstring("allreduce_coalesced of Float and Double: all tensors have to have one type"));
  CHECK(said[11] == "4");
}

namespace {

/// Two ranks, of which rank 1 gives what only root has, or tensors of another type.
std::string misuse(int rank, ShmGroup group, int about) {
  auto process_group = init_process_group(group, rank);
  const at::Tensor value = torch::ones({6}, about == 2 && rank == 1 ? at::kInt : at::kFloat);
  Tensors own{value};
  std::vector<Tensors> lists{{value.clone(), value.clone()}};
  try {
    if (about == 0 && rank == 1) process_group->gather(lists, own, {.rootRank = 0});
    if (about == 1 && rank == 1) process_group->scatter(own, lists, {.rootRank = 0});
    if (about == 2) process_group->allgather(lists, own);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("backend shm: what only root gives is refused on other ranks, and types that differ on all") {
  CHECK_THAT(spawn({.nprocs = 2}, misuse, ShmGroup(2), 0)[1],
             ContainsSubstring("gather: outputs on a rank that is not root 0") && ContainsSubstring("empty list"));
  CHECK_THAT(spawn({.nprocs = 2}, misuse, ShmGroup(2), 1)[1],
             ContainsSubstring("scatter: inputs on a rank that is not root 0"));
  for (auto& said : spawn({.nprocs = 2}, misuse, ShmGroup(2), 2))
    CHECK_THAT(said,
               ContainsSubstring("all_gather(24 bytes of Float)") && ContainsSubstring("all_gather(24 bytes of Int)"));
}

}  // namespace backend_test
