// Every call of c10d's with every type and operation, against a plain loop; done in the call and by a thread.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/process_group.h>

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/backend/premul_sum.h"

using namespace shoal;

namespace backend_calls_test {

namespace {

using Tensors = std::vector<at::Tensor>;
using Op = c10d::ReduceOp::RedOpType;
constexpr int kWorld = 3;

const std::vector<at::ScalarType> kTypes{at::kBool,  at::kByte,   at::kChar,         at::kShort,
                                         at::kInt,   at::kLong,   at::kHalf,         at::kBFloat16,
                                         at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

bool is_defined_for(Op op, at::ScalarType type) {
  const bool bits = op == Op::BAND || op == Op::BOR || op == Op::BXOR;
  if (at::isComplexType(type)) return op == Op::SUM || op == Op::AVG;
  if (at::isFloatingType(type)) return !bits;
  return op != Op::AVG && op != Op::PREMUL_SUM;
}

/// A few small numbers, different on each rank: all sums and products are exact in every type.
at::Tensor values(int rank, std::int64_t count, at::ScalarType type, bool shared) {
  at::Tensor numbers = (at::arange(count, at::kLong) * 7 + rank * 3 + count) % 5;
  if (type == at::kBool) numbers = numbers % 2;
  at::Tensor plain = at::isComplexType(type)
                         ? at::complex(numbers.to(at::kDouble), (numbers + 1).to(at::kDouble)).to(type)
                         : numbers.to(type);
  return shared ? empty_shared({count}, type).copy_(plain) : plain;
}

double factor_of(int rank) { return rank + 0.5; }

std::complex<double> combine(std::complex<double> a, std::complex<double> b, Op op) {
  const auto x = std::int64_t(a.real()), y = std::int64_t(b.real());
  switch (op) {
    case Op::PRODUCT:
      return a * b;
    case Op::MIN:
      return std::min(a.real(), b.real());
    case Op::MAX:
      return std::max(a.real(), b.real());
    case Op::BAND:
      return double(x & y);
    case Op::BOR:
      return double(x | y);
    case Op::BXOR:
      return double(x ^ y);
    default:
      return a + b;
  }
}

/// What all ranks' values(...) become, number by number.
at::Tensor reduced(std::int64_t count, at::ScalarType type, Op op) {
  at::Tensor result = at::zeros({count}, at::kComplexDouble);
  auto* total = reinterpret_cast<std::complex<double>*>(result.data_ptr());
  for (int rank = 0; rank < kWorld; ++rank) {
    const at::Tensor wide = values(rank, count, type, false).to(at::kComplexDouble);
    const auto* own = reinterpret_cast<const std::complex<double>*>(wide.data_ptr());
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = op == Op::PREMUL_SUM ? own[i] * factor_of(rank) : own[i];
      total[i] = rank == 0 ? value : combine(total[i], value, op);
    }
  }
  for (std::int64_t i = 0; i < count && op == Op::AVG; ++i) total[i] /= double(kWorld);
  return at::isComplexType(type) ? result.to(type) : at::real(result).to(type);
}

c10d::ReduceOp operation(Op op, int rank) {
  if (op != Op::PREMUL_SUM) return op;
  // By number and by tensor.
  return rank == 0 ? test::premul_sum(factor_of(rank)) : test::premul_sum(at::full({1}, factor_of(rank)));
}

struct Checks {
  int rank;
  int made = 0;
  void operator()(const std::string& what, const at::Tensor& got, const at::Tensor& wanted) {
    if (!at::equal(got, wanted)) throw std::runtime_error(fmt::format("{} is wrong on rank {}", what, rank));
    ++made;
  }
};

int reductions(int rank, ShmGroup group, Progress progress) {
  at::set_num_threads(1);
  auto ranks = init_process_group(group, rank, {.progress = progress})->getBackend(c10::kCPU);
  Checks check{rank};
  for (at::ScalarType type : kTypes)
    for (Op op : {Op::SUM, Op::AVG, Op::PRODUCT, Op::MIN, Op::MAX, Op::BAND, Op::BOR, Op::BXOR, Op::PREMUL_SUM})
      for (std::int64_t count : {3, 3000})
        for (bool shared : {false, true}) {
          if (!is_defined_for(op, type)) continue;
          const auto what = [&](const char* call) {
            return fmt::format("{} of {} {} by {}{}", call, count, c10::toString(type), int(op),
                               shared ? ", shared" : "");
          };
          const c10d::ReduceOp reduce_op = operation(op, rank);
          const at::Tensor whole = reduced(count, type, op), part = whole.narrow(0, rank * count / 3, count / 3);
          Tensors own{values(rank, count, type, shared)};
          ranks->allreduce(own, {.reduceOp = reduce_op})->wait();
          check(what("allreduce"), own[0], whole);

          own = {values(rank, count, type, shared), values(rank, 9, type, !shared)};
          c10d::AllreduceCoalescedOptions coalesced;
          coalesced.reduceOp = reduce_op;
          ranks->allreduce_coalesced(own, coalesced)->wait();
          check(what("allreduce_coalesced"), own[0], whole);
          check(what("allreduce_coalesced"), own[1], reduced(9, type, op));

          own = {values(rank, count, type, shared)};
          ranks->reduce(own, {.reduceOp = reduce_op, .rootRank = 2})->wait();
          check(what("reduce"), own[0], rank == 2 ? whole : values(rank, count, type, false));

          at::Tensor input = values(rank, count, type, shared), output = at::zeros({count / 3}, type);
          ranks->_reduce_scatter_base(output, input, {.reduceOp = reduce_op})->wait();
          check(what("_reduce_scatter_base"), output, part);
          Tensors outputs{at::zeros({count / 3}, type)}, inputs{input};
          std::vector<Tensors> parts{input.chunk(3)};
          ranks->reduce_scatter(outputs, parts, {.reduceOp = reduce_op})->wait();
          check(what("reduce_scatter"), outputs[0], part);
          outputs = {at::zeros({count / 3}, type), at::zeros({3}, type)};
          inputs.push_back(values(rank, 9, type, shared));
          ranks->reduce_scatter_tensor_coalesced(outputs, inputs, {.reduceOp = reduce_op})->wait();
          check(what("reduce_scatter_tensor_coalesced"), outputs[0], part);
          check(what("reduce_scatter_tensor_coalesced"), outputs[1], reduced(9, type, op).narrow(0, rank * 3, 3));
        }
  return check.made;
}

int moves(int rank, ShmGroup group, Progress progress) {
  at::set_num_threads(1);
  auto ranks = init_process_group(group, rank, {.progress = progress})->getBackend(c10::kCPU);
  Checks check{rank};
  for (at::ScalarType type : kTypes)
    for (std::int64_t count : {3, 3000, 90'000})
      for (bool shared : {false, true}) {
        const auto what = [&](const char* call) {
          return fmt::format("{} of {} {}{}", call, count, c10::toString(type), shared ? ", shared" : "");
        };
        Tensors all;
        for (int other = 0; other < kWorld; ++other) all.push_back(values(other, count, type, false));
        const auto places = [&] {
          return Tensors{at::zeros_like(all[0]), at::zeros_like(all[0]), at::zeros_like(all[0])};
        };
        const auto check_list = [&](const char* call, const Tensors& got, const Tensors& wanted) {
          for (std::size_t i = 0; i < wanted.size(); ++i) check(what(call), got.at(i), wanted[i]);
        };
        const at::Tensor own = values(rank, count, type, shared);
        Tensors one{own.clone()}, inputs{own};
        ranks->broadcast(one, {.rootRank = 1})->wait();
        check(what("broadcast"), one[0], all[1]);

        std::vector<Tensors> lists{places()};
        ranks->allgather(lists, inputs, {})->wait();
        check_list("allgather", lists[0], all);
        at::Tensor whole = at::zeros({3 * count}, type), input = own;
        ranks->_allgather_base(whole, input, {})->wait();
        check(what("_allgather_base"), whole, at::cat(all));
        lists = {};
        for (int other = 0; other < kWorld; ++other)
          lists.push_back({at::zeros({count}, type), at::zeros({count}, type)});
        inputs = {own, own.flip(0)};
        ranks->allgather_coalesced(lists, inputs, {})->wait();
        for (int other = 0; other < kWorld; ++other)
          check_list("allgather_coalesced", lists[std::size_t(other)],
                     {all[std::size_t(other)], all[std::size_t(other)].flip(0)});
        Tensors wholes{at::zeros({3 * count}, type), at::zeros({3 * count}, type)};
        ranks->allgather_into_tensor_coalesced(wholes, inputs, {})->wait();
        check(what("allgather_into_tensor_coalesced"), wholes[0], at::cat(all));
        check(what("allgather_into_tensor_coalesced"), wholes[1],
              at::cat({all[0].flip(0), all[1].flip(0), all[2].flip(0)}));

        inputs = {own};
        lists = {};
        if (rank == 2) lists.push_back(places());
        ranks->gather(lists, inputs, {.rootRank = 2})->wait();
        if (rank == 2) check_list("gather", lists[0], all);
        lists = {};
        if (rank == 1)
          lists.push_back({all[0].clone(), shared ? values(1, count, type, true) : all[1].clone(), all[2].clone()});
        one = {at::zeros({count}, type)};
        ranks->scatter(one, lists, {.rootRank = 1})->wait();
        check(what("scatter"), one[0], all[std::size_t(rank)]);

        at::Tensor parts = at::zeros({count}, type);
        std::vector<std::int64_t> none;
        ranks->alltoall_base(parts, input, none, none, {})->wait();
        Tensors thirds;
        for (const at::Tensor& theirs : all) thirds.push_back(theirs.narrow(0, rank * count / 3, count / 3));
        check(what("alltoall_base"), parts, at::cat(thirds));
        Tensors outgoing{own.narrow(0, 0, 1), own, own.narrow(0, 0, 0)}, incoming;
        const std::int64_t sizes[] = {1, count, 0};
        for (int other = 0; other < kWorld; ++other) incoming.push_back(at::zeros({sizes[rank]}, type));
        ranks->alltoall(incoming, outgoing, {})->wait();
        for (int other = 0; other < kWorld; ++other)
          check(what("alltoall"), incoming[std::size_t(other)], all[std::size_t(other)].narrow(0, 0, sizes[rank]));

        // A ring, coalesced as batch_isend_irecv does it.
        Tensors place{at::zeros({count}, type)};
        one = {own};
        ranks->startCoalescing();
        ranks->send(one, (rank + 1) % kWorld, 3);
        ranks->recv(place, (rank + 2) % kWorld, 3);
        auto both = ranks->endCoalescing();
        both->wait();
        if (!both->isCompleted() || !both->isSuccess()) throw std::runtime_error("coalesced work is not done");
        check(what("send and recv"), place[0], all[std::size_t(rank + 2) % kWorld]);
        ranks->barrier({})->wait();
      }
  return check.made;
}

}  // namespace

TEST_CASE("backend shm: every reduction of c10d's is a plain loop's result, for every type and operation") {
  for (Progress progress : {Progress::in_call, Progress::thread})
    for (int made : spawn({.nprocs = kWorld}, reductions, ShmGroup(kWorld), progress))
      CHECK(made == (6 * 7 + 4 * 6 + 2 * 2) * 2 * 2 * 8);
}

TEST_CASE("backend shm: every call that moves data brings each rank what it is to have, for every type") {
  for (Progress progress : {Progress::in_call, Progress::thread}) {
    const auto made = spawn({.nprocs = kWorld}, moves, ShmGroup(kWorld), progress);
    CHECK(made == std::vector<int>{12 * 6 * 19, 12 * 6 * 19, 12 * 6 * 22});
  }
}

namespace {

/// The sum of all ranks' sparse tensors, some of whose elements are the same ones; and what does not fit.
std::vector<std::string> sparse(int rank, ShmGroup group, Progress progress) {
  auto process_group = init_process_group(group, rank, {.progress = progress});
  auto ranks = process_group->getBackend(c10::kCPU);
  const auto make = [&](int of, at::ScalarType type, bool twice) {
    at::Tensor indices = at::tensor({of, 3, twice ? 3 : 4, of + 1, 0, of}, at::kLong).view({2, 3});
    return at::sparse_coo_tensor(indices, at::ones({3, 2}, type) * (of + 1), {8, 8, 2});
  };
  std::vector<std::string> said;
  for (at::ScalarType type : {at::kHalf, at::kFloat, at::kDouble, at::kLong})
    for (bool twice : {false, true}) {
      at::Tensor dense = at::zeros({8, 8, 2}, type);
      for (int other = 0; other < kWorld; ++other) dense = dense + make(other, type, twice).to_dense();
      Tensors own{make(rank, type, twice)};
      ranks->allreduce(own, {})->wait();
      if (!own[0].is_sparse() || !own[0].is_coalesced() || !at::equal(own[0].to_dense(), dense))
        throw std::runtime_error(fmt::format("a sparse sum of {}", c10::toString(type)));
      own = {make(rank, type, twice)};
      if (!at::isFloatingType(type)) continue;
      ranks->allreduce_sparse(own, {.reduceOp = Op::AVG})->wait();
      if (!at::equal(own[0].to_dense(), dense / kWorld)) throw std::runtime_error("a sparse average");
    }
  const auto refuse = [&](Tensors own, Op op) {
    try {
      ranks->allreduce(own, {.reduceOp = op})->wait();
      said.push_back("went through");
    } catch (const std::invalid_argument& error) {
      said.push_back(error.what());
    }
  };
  refuse({make(rank, rank == 1 ? at::kDouble : at::kFloat, false)}, Op::SUM);
  refuse({make(rank, at::kFloat, false)}, Op::MAX);
  refuse({rank == 2 ? at::ones({4}) : make(rank, at::kFloat, false)}, Op::SUM);
  Tensors one{at::ones({2})};
  ranks->allreduce(one, {})->wait();
  said.push_back(fmt::format("{}", one[0][1].item<float>()));
  return said;
}

}  // namespace

TEST_CASE("backend shm: sparse tensors are summed and averaged, and what does not fit is told to all") {
  for (Progress progress : {Progress::in_call, Progress::thread})
    for (auto& said : spawn({.nprocs = kWorld}, sparse, ShmGroup(kWorld), progress)) {
      REQUIRE(said.size() == 4);
      CHECK_THAT(said[0],
                 ContainsSubstring("rank 0 gave the sum of a sparse tensor of Float [8, 8, 2], 2 of its dimensions "
                                   "sparse, and rank 1 the sum of a sparse tensor of Double"));
      CHECK_THAT(said[1], ContainsSubstring("all_reduce by max of sparse tensors"));
      CHECK_THAT(said[2], ContainsSubstring("all_gather_object") && ContainsSubstring("all_reduce(16 bytes"));
      CHECK(said[3] == "3");
    }
}

namespace {

/// One rank alone gives what makes no sense: the others are told, and all go on.
std::vector<std::string> wrong_alone(int rank, ShmGroup group, Progress progress) {
  auto ranks = init_process_group(group, rank, {.progress = progress})->getBackend(c10::kCPU);
  std::vector<std::string> said;
  const auto attempt = [&](auto&& call) {
    try {
      call()->wait();
      said.push_back("went through");
    } catch (const std::invalid_argument& error) {
      said.push_back(error.what());
    }
  };
  const bool odd = rank == 1;
  at::Tensor six = at::ones({6}), place = at::zeros({6});
  std::vector<std::int64_t> none, wrong{1, 2, 2};
  attempt([&] { return ranks->alltoall_base(place, six, none, odd ? wrong : none, {}); });
  attempt([&] { return ranks->alltoall_base(odd ? six : place, six, none, none, {}); });
  Tensors inputs{at::ones({2}), at::ones({2}), at::ones({2})}, outputs = inputs;
  if (odd) inputs.pop_back();
  attempt([&] { return ranks->alltoall(outputs, inputs, {}); });
  inputs = outputs;
  if (odd) inputs[1] = inputs[1].to(at::kLong);
  attempt([&] { return ranks->alltoall(outputs, inputs, {}); });
  // Nothing goes to another rank, and more than a chunk to each itself.
  at::Tensor large = at::full({400'000}, float(rank)), got = at::zeros({400'000});
  std::vector<std::int64_t> own{rank == 0 ? 400'000 : 0, rank == 1 ? 400'000 : 0, rank == 2 ? 400'000 : 0};
  ranks->alltoall_base(got, large, own, own, {})->wait();
  said.push_back(at::equal(got, large) ? "right" : "wrong");
  return said;
}

}  // namespace

TEST_CASE("backend shm: what one rank alone gives wrongly to an all-to-all is told to the others, and all go on") {
  for (Progress progress : {Progress::in_call, Progress::thread}) {
    const auto all = spawn({.nprocs = kWorld}, wrong_alone, ShmGroup(kWorld), progress);
    const std::vector<std::string> reasons{
        "input_splits leave 1 of the input's 6 rows over", "the output overlaps the input",
        "3 outputs and 2 inputs in a group of 3 ranks", "alltoall of Float and Long"};
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      REQUIRE(all[rank].size() == 5);
      for (std::size_t i = 0; i < reasons.size(); ++i) {
        CHECK_THAT(all[rank][i], ContainsSubstring(reasons[i]));
        if (rank != 1) CHECK_THAT(all[rank][i], ContainsSubstring("all_to_all: rank 1 cannot take part: "));
      }
      CHECK(all[rank][4] == "right");
    }
  }
}

namespace {

/// Rank 1 alone gives each collective what it cannot take, and all go on.
std::vector<std::string> refused_alone(int rank, ShmGroup group, Progress progress) {
  auto ranks = init_process_group(group, rank, {.progress = progress})->getBackend(c10::kCPU);
  std::vector<std::string> said;
  const auto attempt = [&](auto&& call) {
    try {
      call()->wait();
      said.push_back("went through");
    } catch (const std::invalid_argument& error) {
      said.push_back(error.what());
    }
  };
  const bool odd = rank == 1;
  const auto ones = [](std::int64_t count) { return at::ones({count}); };
  Tensors one{odd ? at::ones({4}, at::kMeta) : ones(4)}, own{ones(4)}, none{odd ? at::Tensor() : ones(4)};
  attempt([&] { return ranks->allreduce(one, {}); });
  attempt([&] { return ranks->broadcast(none, {.rootRank = 1}); });
  attempt([&] { return ranks->reduce(own, {.reduceOp = odd ? Op::BAND : Op::SUM, .rootRank = 0}); });
  Tensors two{ones(2), odd ? at::eye(2).to_sparse_csr() : ones(4)};
  attempt([&] { return ranks->allreduce_coalesced(two, {}); });
  std::vector<Tensors> lists{{ones(4), ones(4), ones(odd ? 3 : 4)}};
  attempt([&] { return ranks->allgather(lists, own, {}); });
  at::Tensor whole = ones(odd ? 11 : 12), part = ones(4);
  attempt([&] { return ranks->_allgather_base(whole, part, {}); });
  attempt([&] { return ranks->_reduce_scatter_base(part, whole, {}); });
  std::vector<Tensors> on_root;
  if (odd) on_root.push_back({ones(4)});
  attempt([&] { return ranks->gather(on_root, own, {.rootRank = 1}); });
  attempt([&] { return ranks->scatter(own, on_root, {.rootRank = 1}); });
  std::vector<Tensors> parts{{ones(4), ones(4), ones(4)}};
  if (odd) parts[0].pop_back();
  attempt([&] { return ranks->reduce_scatter(own, parts, {}); });
  try {
    ranks->split(nullptr, odd ? std::vector<int>{0, 7} : std::vector<int>{0, 1, 2}, nullptr);
    said.push_back("went through");
  } catch (const std::invalid_argument& error) {
    said.push_back(error.what());
  }
  own[0].fill_(rank + 1);
  ranks->allreduce(own, {})->wait();
  said.push_back(fmt::format("{}", own[0][3].item<float>()));
  return said;
}

}  // namespace

TEST_CASE("backend shm: what one rank alone gives wrongly to any collective is told to the others, and all go on") {
  for (Progress progress : {Progress::in_call, Progress::thread}) {
    const auto all = spawn({.nprocs = kWorld}, refused_alone, ShmGroup(kWorld), progress);
    const std::vector<std::pair<std::string, std::string>> reasons{
        {"all_reduce", "allreduce of a tensor on meta"},
        {"broadcast", "broadcast of an undefined tensor"},
        {"reduce", "bit_and of Float"},
        {"all_reduce", "allreduce of a SparseCsr tensor"},
        {"all_gather", "an output of 3 Float for an input of 4 Float"},
        {"all_gather", "needs a contiguous buffer of 3 times 4 Float"},
        {"reduce_scatter", "needs a contiguous buffer of 3 times 4 Float"},
        {"gather", "1 outputs in a group of 3 ranks"},
        {"scatter", "1 inputs in a group of 3 ranks"},
        {"reduce_scatter", "2 inputs in a group of 3 ranks"},
        {"split", "rank 7 of a group of 3"}};
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      REQUIRE(all[rank].size() == reasons.size() + 1);
      for (std::size_t i = 0; i < reasons.size(); ++i) {
        CHECK_THAT(all[rank][i], ContainsSubstring(reasons[i].second));
        if (rank != 1) CHECK_THAT(all[rank][i], StartsWith(reasons[i].first + ": rank 1 cannot take part: "));
      }
      CHECK(all[rank].back() == "6");
    }
  }
}

namespace {

/// What else c10d::Backend has.
std::vector<std::string> the_rest(int rank, ShmGroup group, Progress progress) {
  auto ranks = init_process_group(group, rank, {.progress = progress})->getBackend(c10::kCPU);
  std::vector<std::string> said;
  ranks->setSequenceNumberForGroup();
  const std::uint64_t before = ranks->getSequenceNumberForGroup();
  std::vector<c10d::OpType> reported;
  ranks->registerOnCompletionHook([&](std::shared_ptr<c10d::WorkInfo> info) { reported.push_back(info->opType); });
  Tensors one{ranks->allocateTensor(100, at::kFloat)};
  said.push_back(is_shared(one[0]) ? "shared" : "private");
  one[0].fill_(rank);
  auto work = ranks->allreduce(one, {});
  ranks->barrier({});
  ranks->waitForPendingWorks();
  said.push_back(work->isCompleted() ? fmt::format("{}", one[0][99].item<float>()) : "not done");
  said.push_back(fmt::format("{} {}", work->getSequencenumber() - before, ranks->getSequenceNumberForGroup() - before));
  said.push_back(work->getDuration() > 0 ? "took its time" : "took none");
  said.push_back(reported == std::vector<c10d::OpType>{c10d::OpType::ALLREDUCE, c10d::OpType::BARRIER} ? "both"
                                                                                                       : "not both");
  ranks->registerOnCompletionHook({});
  auto future = ranks->allreduce(one, {})->getFuture();
  future->wait();
  said.push_back(fmt::format("{}", future->value().toTensorVector().at(0)[0].item<float>()));
  ranks->setTimeout(std::chrono::seconds(17));
  said.push_back(
      fmt::format("{} {}", ranks->getBackendOptions()->backend, ranks->getBackendOptions()->timeout.count()));
  auto part = ranks->split(nullptr, {0, 2}, nullptr);
  if (part) {
    Tensors two{at::ones({1})};
    part->allreduce(two, {})->wait();
    said.push_back(fmt::format("{} of {}: {}", part->getRank(), part->getSize(), two[0].item<float>()));
  } else {
    said.push_back("no member");
  }
  said.push_back(ranks->getError() == c10d::ErrorType::SUCCESS ? "no error" : "an error");
  Tensors token{at::ones({1})};
  if (rank == 0) {
    c10d::BarrierOptions options;
    options.timeout = std::chrono::milliseconds(20);
    try {
      ranks->barrier(options)->wait();
    } catch (const std::exception&) {
      said.push_back(ranks->getError() == c10d::ErrorType::TIMEOUT ? "timed out" : "no error");
    }
    for (int other : {1, 2}) ranks->send(token, other, 0)->wait();
  } else {
    ranks->recv(token, 0, 0)->wait();  // rank 0 is to give up, not to be left
  }
  return said;
}

}  // namespace

TEST_CASE("backend shm: sequence numbers, hooks, timings, memory, parts and errors are what c10d asks for") {
  for (Progress progress : {Progress::in_call, Progress::thread}) {
    const auto said = spawn({.nprocs = kWorld}, the_rest, ShmGroup(kWorld), progress);
    std::vector<std::string> wanted{"shared", "3",         "1 2",       "took its time", "both",
                                    "9",      "shm 17000", "0 of 2: 2", "no error",      "timed out"};
    CHECK(said[0] == wanted);
    wanted.pop_back();
    wanted[7] = "no member";
    CHECK(said[1] == wanted);
  }
}

}  // namespace backend_calls_test
