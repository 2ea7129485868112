#include <shoal/workers/train/tensor_collectives.h>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace tensor_collectives_test {

namespace {

constexpr int kWorld = 3;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Rank + 1 times the same numbers: contiguous, a transposed view, or in the heap.
at::Tensor values(int times, int kind) {
  at::Tensor plain = at::arange(2000, at::kFloat).view({50, 40}) * times;
  if (kind == 1) return plain.t().contiguous().t();
  if (kind == 2) return empty_shared({50, 40}).copy_(plain);
  return plain;
}

int all_of_tensors(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  int checked = 0;
  auto check = [&](const char* what, const at::Tensor& got, int times) {
    require(at::equal(got, values(times, 0)), fmt::format("{} is wrong on rank {}", what, rank));
    ++checked;
  };
  for (int kind : {0, 1, 2}) {
    at::Tensor own = values(rank + 1, kind);
    all_reduce(ranks, own);
    check("all_reduce", own, 6);
    own = values(rank + 1, kind);
    all_reduce(ranks, own, ReduceOp::max);
    check("all_reduce by max", own, 3);
    own = values(rank + 1, kind);
    reduce(ranks, own, 1);
    check("reduce", own, rank == 1 ? 6 : rank + 1);
    own = values(rank + 1, kind);
    broadcast(ranks, own, 2);
    check("broadcast", own, 3);
    own = values(rank + 1, kind);
    std::vector<at::Tensor> all = all_gather(ranks, own);
    for (int other = 0; other < kWorld; ++other) check("all_gather", all[std::size_t(other)], other + 1);
    all = gather(ranks, own, 1);
    require(all.size() == (rank == 1 ? kWorld : 0), "who gathers");
    for (std::size_t other = 0; other < all.size(); ++other) check("gather", all[other], int(other) + 1);

    // Rows 0 to 9 go to rank 0, and so on; then all of rank 1's rows to rank 2, and nothing else.
    own = values(rank + 1, kind).narrow(0, 0, 30);
    at::Tensor got = at::zeros({30, 40});
    all_to_all_single(ranks, got, own);
    for (int other = 0; other < kWorld; ++other)
      require(at::equal(got.narrow(0, other * 10, 10), values(other + 1, 0).narrow(0, rank * 10, 10)),
              fmt::format("all_to_all_single gave rank {} wrong rows of rank {}", rank, other));
    got = at::zeros({rank == 2 ? 30 : 0, 40});
    const std::vector<std::int64_t> none{0, 0, 0}, to_two{0, 0, 30}, from_one{0, 30, 0};
    all_to_all_single(ranks, got, rank == 1 ? own : own.narrow(0, 0, 0), rank == 2 ? from_one : none,
                      rank == 1 ? to_two : none);
    require(rank != 2 || at::equal(got, values(2, 0).narrow(0, 0, 30)), "all_to_all_single with splits");
    checked += 2;
  }
  return checked;
}

std::string differ_in_type(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  try {
    broadcast(ranks, at::arange(4, rank == 0 ? at::kInt : at::kFloat));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("tensor collectives: each gives every rank what it says, for tensors of all kinds") {
  auto checked = spawn({.nprocs = kWorld}, all_of_tensors, ShmGroup(kWorld));
  CHECK(checked == std::vector<int>{3 * 9, 3 * 12, 3 * 9});
}

namespace {

/// What a rank is told that cuts its tensors wrongly, or that expects what nobody sends.
std::vector<std::string> wrong_splits(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  std::vector<std::string> said;
  auto attempt = [&](const at::Tensor& output, const at::Tensor& input, std::vector<std::int64_t> output_splits,
                     std::vector<std::int64_t> input_splits) {
    try {
      all_to_all_single(ranks, output, input, output_splits, input_splits);
      said.push_back("went through");
    } catch (const std::invalid_argument& error) {
      said.push_back(error.what());
    }
  };
  const at::Tensor four = at::ones({4, 2}), three = at::ones({3, 2});
  attempt(at::zeros({4, 2}), three, {}, {});
  attempt(at::zeros({4, 2}), four, {}, {4});
  attempt(at::zeros({4, 2}), four, {}, {3, 2});
  attempt(at::zeros({4, 2}), four, {}, {1, 2});
  attempt(at::zeros({4, 2}), four, {5, -1}, {});
  attempt(at::zeros({4, 2}, at::kInt), four, {}, {});
  attempt(four, four, {}, {});
  attempt(at::zeros({}), four, {}, {});
  // Only rank 1 is wrong: both are told.
  attempt(at::zeros({4, 2}), four, rank == 1 ? std::vector<std::int64_t>{3, 1} : std::vector<std::int64_t>{}, {});
  at::Tensor result = at::zeros({4, 2});
  all_to_all_single(ranks, result, four * (rank + 1));
  said.push_back(fmt::format("{}", result.sum().item<float>()));
  return said;
}

}  // namespace

TEST_CASE("tensor collectives: all_to_all_single names what does not fit, to all ranks, and the group goes on") {
  for (auto& said : spawn({.nprocs = 2}, wrong_splits, ShmGroup(2))) {
    REQUIRE(said.size() == 10);
    CHECK_THAT(said[0], ContainsSubstring("3 rows of the input are not 2 equal parts: give input_splits"));
    CHECK_THAT(said[1], ContainsSubstring("1 input_splits in a group of 2 ranks"));
    CHECK_THAT(said[2], ContainsSubstring("input_splits[1] is 2, and 1 of the input's 4 rows are left"));
    CHECK_THAT(said[3], ContainsSubstring("input_splits leave 1 of the input's 4 rows over"));
    CHECK_THAT(said[4], ContainsSubstring("output_splits[0] is 5"));
    CHECK_THAT(said[5], ContainsSubstring("an output of Int for an input of Float"));
    CHECK_THAT(said[6], ContainsSubstring("the output overlaps the input"));
    CHECK_THAT(said[7], ContainsSubstring("the output has no dimension"));
    CHECK_THAT(said[8], ContainsSubstring("all_to_all: rank 0 sends 16 bytes to rank 1, which expects 24"));
    CHECK(said[9] == "12");
  }
}

TEST_CASE("tensor collectives: element types that differ are told to all ranks") {
  for (auto& said : spawn({.nprocs = 2}, differ_in_type, ShmGroup(2)))
    CHECK_THAT(said, ContainsSubstring("of Int") && ContainsSubstring("of Float"));
}

namespace {

/// Each rank's data stay with it. It would be killed in a second round.
bool keep_all(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  const at::Tensor own = at::full({400'000}, float(rank));
  at::Tensor got = at::zeros({400'000});
  std::vector<std::int64_t> splits(2, 0);
  splits[std::size_t(rank)] = 400'000;
  kill_at("group.signal.before", 1);
  all_to_all_single(ranks, got, own, splits, splits);
  kill_at("nowhere");
  return at::equal(got, own);
}

}  // namespace

TEST_CASE("tensor collectives: an all-to-all in which nobody sends to another is one round, whatever a rank keeps") {
  ShmGroup group(2);
  Process<bool> first({}, keep_all, 0, group), second({}, keep_all, 1, group);
  first.start();
  second.start();
  CHECK(first.result());
  CHECK(second.result());
}

}  // namespace tensor_collectives_test
