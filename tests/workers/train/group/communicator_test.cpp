#include <shoal/workers/train/communicator.h>

#include <fmt/format.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/heap.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/numbers.h"

using namespace shoal;
using namespace shoal::test;

namespace communicator_test {

namespace {

/// Which ranks' tensors lie in the heap.
enum class Place { nowhere, everywhere, odd_ranks };

constexpr int kChunk = 128 << 10;

/// Elements of four bytes: nothing, one, around the limit of one round, around one and three chunks, and
/// odd large ones.
const std::vector<std::int64_t> kCounts{
    0, 1, 100, 1023, 1024, 1025, kChunk / 4, kChunk / 4 + 1, 3 * kChunk / 4 - 1, 100'003, 500'001};

/// One computing thread a rank: OpenMP's threads wait for each other busily, which takes for ever on a
/// machine with other work.
Communicator join(const ShmGroup& group, int rank) {
  at::set_num_threads(1);
  return group.join(rank);
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// The same numbers in every process that asks for this rank's.
at::Tensor values_of(int rank, std::int64_t count, at::ScalarType type) {
  return repeated((numbers_of(rank, count, at::kLong, 0) - 2).to(type), count);
}

struct Data {
  at::Tensor tensor;
  Data(at::Tensor values, int rank, Place place) {
    bool shared = place == Place::everywhere || (place == Place::odd_ranks && rank % 2 == 1);
    tensor = shared ? empty_shared(values.sizes(), values.options()).copy_(values) : values.clone();
  }
  Region region() const { return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes(), shared_hold(tensor)}; }
  std::byte* data() const { return static_cast<std::byte*>(tensor.data_ptr()); }
};

at::Tensor sum_of_all(int world, std::int64_t count, at::ScalarType type) {
  at::Tensor sum = torch::zeros({std::min(count, kPeriod)}, type);
  for (int rank = 0; rank < world; ++rank) sum += values_of(rank, sum.size(0), type);
  return repeated(sum, count);
}

int all_collectives(int rank, ShmGroup group, Place place, std::int64_t largest) {
  Communicator ranks = join(group, rank);
  const int world = ranks.world_size();
  int checked = 0;
  for (std::int64_t count : kCounts) {
    if (count > largest) continue;
    const int root = int(count % world);
    const at::ScalarType type = at::kInt;
    const at::Tensor own = values_of(rank, count, type), sum = sum_of_all(world, count, type);
    auto check = [&](const char* what, const at::Tensor& got, const at::Tensor& wanted) {
      require(torch::equal(got, wanted), fmt::format("{} of {} elements on rank {} is wrong", what, count, rank));
      ++checked;
    };

    Data data(own, rank, place);
    ranks.all_reduce(data.region(), type, ReduceOp::sum);
    check("all_reduce", data.tensor, sum);

    Data reduced(own, rank, place);
    ranks.reduce(reduced.region(), type, ReduceOp::sum, root);
    check("reduce", reduced.tensor, rank == root ? sum : own);

    Data sent(own, rank, place);
    ranks.broadcast(sent.region(), root);
    check("broadcast", sent.tensor, values_of(root, count, type));

    Data gathered(own, rank, place);
    std::vector<at::Tensor> outputs;
    std::vector<std::byte*> pointers;
    for (int i = 0; i < world; ++i)
      pointers.push_back(static_cast<std::byte*>(outputs.emplace_back(torch::full({count}, 99, type)).data_ptr()));
    ranks.all_gather(gathered.region(), pointers);
    for (int i = 0; i < world; ++i) check("all_gather", outputs[std::size_t(i)], values_of(i, count, type));
    for (auto& output : outputs) output.fill_(99);
    ranks.gather(gathered.region(), rank == root ? pointers : std::vector<std::byte*>(), root);
    for (int i = 0; i < world; ++i)
      check("gather", outputs[std::size_t(i)],
            rank == root ? values_of(i, count, type) : torch::full({count}, 99, type));

    Data parts(values_of(rank, count * world, type), rank, place);
    Data part(torch::empty({count}, type), rank, place);
    ranks.reduce_scatter(parts.region(), part.data(), type, ReduceOp::sum);
    check("reduce_scatter", part.tensor, sum_of_all(world, count * world, type).narrow(0, rank * count, count));
    ranks.scatter(rank == root ? parts.region() : Region{}, part.data(), part.tensor.nbytes(), root);
    check("scatter", part.tensor, values_of(root, count * world, type).narrow(0, rank * count, count));
    // Parts of unequal sizes, some of them empty; each says who sends it, and to whom.
    const auto size_of = [&](int from, int to) { return count * ((from + 2 * to) % 3); };
    const auto part_of = [&](int from, int to) {
      return values_of(from, count * 2, type).narrow(0, 0, size_of(from, to)) + 1000 * to;
    };
    std::vector<at::Tensor> outgoing, incoming;
    std::vector<std::size_t> sent_bytes, received_bytes;
    for (int other = 0; other < world; ++other) {
      sent_bytes.push_back(outgoing.emplace_back(part_of(rank, other)).nbytes());
      received_bytes.push_back(incoming.emplace_back(part_of(other, rank)).nbytes());
    }
    Data given(torch::cat(outgoing), rank, place);
    Data got(torch::full_like(torch::cat(incoming), 99), rank, place);
    ranks.all_to_all(given.region(), sent_bytes, got.data(), received_bytes, type);
    check("all_to_all", got.tensor, torch::cat(incoming));
    ranks.barrier();
  }
  return checked;
}

/// A checksum of results that depend on the order of summation.
std::vector<std::size_t> inexact_sums(int rank, ShmGroup group, Place place) {
  Communicator ranks = join(group, rank);
  std::vector<std::size_t> sums;
  for (auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (std::int64_t count : kCounts) {
      torch::manual_seed(rank);
      Data data((torch::rand({count}, at::kDouble) * 1000).to(type), rank, place);
      ranks.all_reduce(data.region(), type, ReduceOp::avg);
      sums.push_back(
          std::hash<std::string_view>()({static_cast<const char*>(data.tensor.data_ptr()), data.tensor.nbytes()}));
    }
  return sums;
}

/// Tensors that come and go, and more of them than are remembered.
std::size_t many_blocks(int rank, ShmGroup group) {
  Communicator ranks = join(group, rank);
  std::vector<Data> kept;
  for (int i = 0; i < 70; ++i) kept.emplace_back(torch::full({5000}, i, at::kInt), rank, Place::everywhere);
  for (int i = 0; i < 300; ++i) {
    Data fresh(torch::full({20'000 + i % 3}, rank + i, at::kInt), rank, Place::everywhere);
    ranks.all_reduce(fresh.region(), at::kInt, ReduceOp::max);
    require(fresh.tensor.eq(ranks.world_size() - 1 + i).all().item<bool>(), fmt::format("fresh tensor {} is wrong", i));
    Data& old = kept[std::size_t(i) % kept.size()];
    ranks.all_reduce(old.region(), at::kInt, ReduceOp::max);
    require(old.tensor.eq(i % 70).all().item<bool>(), fmt::format("kept tensor {} is wrong", i % 70));
  }
  kept.clear();
  // What the others keep of those is let go slot by slot.
  Data last(torch::zeros({5000}, at::kInt), rank, Place::everywhere);
  for (int i = 0; i < 65; ++i) ranks.all_reduce(last.region(), at::kInt, ReduceOp::max);
  ranks.barrier();
  return heap_bytes_in_use();
}

}  // namespace

TEST_CASE("communicator: every collective gives every rank what it should, for all sizes and places of data") {
  for (int world : {1, 2, 3, 4})
    for (Place place : {Place::nowhere, Place::everywhere, Place::odd_ranks}) {
      INFO(world << " ranks, place " << int(place));
      for (int checked : spawn({.nprocs = world}, all_collectives, ShmGroup(world), place, kCounts.back()))
        CHECK(checked == int(kCounts.size()) * (6 + 2 * world));
    }
}

namespace {

/// Rank 0 gives `first` bytes in all, each other one `others`, cut into unequal parts whose bytes say whose they are.
void all_to_all_of(int rank, ShmGroup group, std::size_t first, std::size_t others, Place place) {
  Communicator ranks = join(group, rank);
  const int world = ranks.world_size();
  const auto part_size = [&](int from, int to) {
    const std::size_t all = from == 0 ? first : others, each = all / std::size_t(world + 1);
    return to == 0 ? all - each * std::size_t(world - 1) : each;
  };
  const auto byte_of = [](int from, int to, std::size_t at) {
    return std::byte(at * 7 + from * 41 + to * 13 + at / 251);
  };
  std::vector<std::size_t> sent, received;
  std::vector<std::byte> given, wanted;
  for (int other = 0; other < world; ++other) {
    sent.push_back(part_size(rank, other));
    received.push_back(part_size(other, rank));
    for (std::size_t at = 0; at < sent.back(); ++at) given.push_back(byte_of(rank, other, at));
    for (std::size_t at = 0; at < received.back(); ++at) wanted.push_back(byte_of(other, rank, at));
  }
  Data input(torch::from_blob(given.data(), {std::int64_t(given.size())}, at::kByte).clone(), rank, place);
  std::vector<std::byte> got(wanted.size());
  for (int again = 0; again < 4; ++again) {  // each stage in its turn
    std::ranges::fill(got, std::byte(0xee));
    ranks.all_to_all(input.region(), sent, got.data(), received, at::kByte);
    require(got == wanted, fmt::format("{} and {} bytes: what rank {} got is wrong", first, others, rank));
  }
  ranks.barrier();
}

}  // namespace

TEST_CASE("communicator: all_to_all around the limit up to which parts go along with their sizes") {
  constexpr std::size_t kAlong = 16 << 10;
  for (const auto& [first, others] : std::vector<std::pair<std::size_t, std::size_t>>{
           {kAlong, kAlong}, {kAlong, 5}, {kAlong + 1, kAlong}, {kAlong - 1, kAlong + 1}, {0, kAlong}, {0, kAlong + 1}})
    for (Place place : {Place::nowhere, Place::odd_ranks})
      spawn({.nprocs = 3}, all_to_all_of, ShmGroup(3), first, others, place);
}

TEST_CASE("communicator: more ranks than CPUs get through") {
  // Every round waits for nine turns on what CPUs there are, so not too many of them.
  for (int checked : spawn({.nprocs = 9}, all_collectives, ShmGroup(9), Place::odd_ranks, kChunk / 4 + 1))
    CHECK(checked > 100);
}

TEST_CASE("communicator: all ranks have the same bits of a sum that depends on its order") {
  for (int world : {2, 3, 4})
    for (Place place : {Place::nowhere, Place::everywhere, Place::odd_ranks}) {
      auto sums = spawn({.nprocs = world}, inexact_sums, ShmGroup(world), place);
      CHECK(sums[0].size() == 4 * kCounts.size());
      for (auto& of_rank : sums) CHECK(of_rank == sums[0]);
    }
}

TEST_CASE("communicator: the round counters may wrap around") {
  for (std::uint32_t first : {0xffff'fff0u, 0x7fff'fff0u})
    for (int checked : spawn({.nprocs = 3}, all_collectives, ShmGroup(3, first), Place::odd_ranks, 100'003))
      CHECK(checked > 100);
}

TEST_CASE("communicator: tensors that are gone are not kept by the other ranks") {
  for (std::size_t bytes : spawn({.nprocs = 2}, many_blocks, ShmGroup(2))) {
    // The group itself, the last tensors, and next to nothing else: all that came and went is 54 MB.
    CHECK(bytes < (3u << 20));
  }
}

namespace {

/// Heap bytes when both ranks have let go of a large tensor that was broadcast, and of one that was reduced often; the
/// ranks take turns, so that both see the same.
std::vector<std::size_t> let_go(int rank, ShmGroup group, Barrier meeting) {
  constexpr std::int64_t kLarge = 4 << 20;
  Communicator ranks = join(group, rank);
  std::vector<std::size_t> seen;
  // Not by the group's own barrier, which finds by itself what is gone.
  auto look = [&] {
    meeting.wait();
    seen.push_back(heap_bytes_in_use());
    meeting.wait();
  };
  {
    Data sent(torch::full({kLarge}, rank, at::kInt), rank, Place::everywhere);
    ranks.broadcast(sent.region(), 0);
    require(sent.tensor.eq(0).all().item<bool>(), "the broadcast is wrong");
  }
  look();
  {
    Data often(torch::full({kLarge}, rank, at::kInt), rank, Place::everywhere);
    for (int i = 0; i < 5; ++i) ranks.all_reduce(often.region(), at::kInt, ReduceOp::max);
    look();
  }
  ranks.barrier();  // here the ranks find that it is gone, and say so
  look();
  return seen;
}

int one_tensor_for_all(int rank, ShmGroup group, at::Tensor shared) {
  Communicator ranks = join(group, rank);
  Region region{static_cast<std::byte*>(shared.data_ptr()), shared.nbytes(), shared_hold(shared)};
  ranks.all_reduce(region, at::kFloat, ReduceOp::sum);
  return ranks.world_size();
}

}  // namespace

TEST_CASE("communicator: a tensor that was shown once is kept by nobody, and others until the next barrier") {
  for (auto& seen : spawn({.nprocs = 2}, let_go, ShmGroup(2), Barrier(2))) {
    CHECK(seen[0] < (4u << 20));   // 32 MiB were broadcast
    CHECK(seen[1] > (32u << 20));  // and now as many are there
    CHECK(seen[2] < (4u << 20));
  }
}

TEST_CASE("communicator: one shared tensor may be everybody's: it counts once a rank") {
  at::Tensor shared = torch::ones({100'000});
  share_memory_(shared);
  spawn({.nprocs = 3}, one_tensor_for_all, ShmGroup(3), shared);
  CHECK(shared.eq(3).all().item<bool>());
}

}  // namespace communicator_test
