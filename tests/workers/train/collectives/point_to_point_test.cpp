#include <shoal/workers/train/point_to_point.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/process_group.h>
#include <shoal/workers/train/tensor_collectives.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace point_to_point_test {

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Contiguous, a transposed view, or in the heap.
at::Tensor values(std::int64_t rows, int times, int kind) {
  at::Tensor plain = at::arange(rows * 4, at::kFloat).view({rows, 4}) * times;
  if (kind == 1) return plain.t().contiguous().t();
  if (kind == 2) return empty_shared({rows, 4}).copy_(plain);
  return plain;
}

/// Everybody to everybody: of sizes around every limit (inline, with the message, one chunk, several), all places.
int all_pairs(int rank, ShmGroup group) {
  at::set_num_threads(1);
  Communicator ranks = group.join(rank);
  int received = 0;
  for (std::int64_t rows : {0, 1, 1024, 1025, 16'384, 32'768, 32'769, 200'000})
    for (int kind : {0, 1, 2})
      for (int place : {0, 1, 2})
        for (int from = 0; from < ranks.world_size(); ++from)
          for (int to = 0; to < ranks.world_size(); ++to) {
            if (from == to) continue;
            if (rank == from) {
              at::Tensor sent = values(rows, 1 + from, kind);
              send(ranks, sent, to, to);
              sent.fill_(-1);  // it may be changed now
            }
            if (rank != to) continue;
            at::Tensor got = values(rows, 0, place);
            recv(ranks, got, from, to);
            require(at::equal(got, values(rows, 1 + from, 0)),
                    fmt::format("{} rows of kind {} from rank {} to rank {}", rows, kind, from, to));
            ++received;
          }
  return received;
}

std::vector<double> out_of_order(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  std::vector<double> got;
  if (rank == 0) {
    // Larger than a message, so that bodies are fetched out of order, too; and more than a mailbox has room for.
    for (int tag = 0; tag < 200; ++tag) isend(ranks, at::full({tag % 3 == 0 ? 300'000 : 3}, double(tag)), 1, tag % 100);
    recv(ranks, at::zeros({1}), 1, 500);
    return got;
  }
  for (int tag = 99; tag >= 0; --tag)
    for (int turn : {0, 1}) {
      const int sent = tag + 100 * turn;
      at::Tensor place = at::zeros({sent % 3 == 0 ? 300'000 : 3}, at::kFloat);
      recv(ranks, place, 0, tag);
      got.push_back(place[2].item<double>());
    }
  send(ranks, at::ones({1}), 0, 500);
  return got;
}

}  // namespace

TEST_CASE("point to point: what was sent arrives, whatever its size and place, and wherever it goes") {
  CHECK(spawn({.nprocs = 3}, all_pairs, ShmGroup(3)) == std::vector<int>(3, 8 * 9 * 2));
}

TEST_CASE("point to point: messages come by tag, and those of one tag in the order in which they were sent") {
  auto got = spawn({.nprocs = 2}, out_of_order, ShmGroup(2))[1];
  std::vector<double> wanted;
  for (int tag = 99; tag >= 0; --tag) wanted.insert(wanted.end(), {double(tag), double(tag + 100)});
  CHECK(got == wanted);
}

namespace {

/// All ranks send to rank 0, which takes from whom it gets.
std::map<int, float> from_any(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  std::map<int, float> sums;
  if (rank == 0) {
    for (int i = 0; i < 3 * 20; ++i) {
      at::Tensor place = at::zeros({i < 30 ? 50'000 : 50'000});
      const int sender = recv_anysource(ranks, place, 7);
      sums[sender] += place[49'999].item<float>();
    }
  } else {
    for (int i = 0; i < 20; ++i) send(ranks, at::full({50'000}, float(rank)), 0, 7);
  }
  ranks.barrier();
  return sums;
}

/// Both send several megabytes to each other at once, and a chain of many small ones.
int both_ways(int rank, ShmGroup group, bool shared) {
  at::set_num_threads(1);
  Communicator ranks = group.join(rank);
  int right = 0;
  for (int i = 0; i < 20; ++i) {
    at::Tensor own = at::full({1'000'000}, float(100 * rank + i)), place = at::zeros({1'000'000});
    if (shared) share_memory_(own);
    Transfer out = isend(ranks, own, 1 - rank, i), in = irecv(ranks, place, 1 - rank, i);
    require(in.wait() == 1 - rank && out.wait() == 1 - rank, "the other rank");
    require(in.is_done() && out.is_done() && !in.failure() && !out.failure(), "what a transfer says that is done");
    right += at::equal(place, at::full({1'000'000}, float(100 * (1 - rank) + i)));
  }
  // More than both mailboxes take, before anybody receives.
  std::vector<Transfer> sends;
  for (int i = 0; i < 300; ++i) sends.push_back(isend(ranks, at::full({5}, float(i)), 1 - rank, 100));
  for (int i = 0; i < 300; ++i) {
    at::Tensor place = at::zeros({5});
    recv(ranks, place, 1 - rank, 100);
    right += at::equal(place, at::full({5}, float(i)));
  }
  for (Transfer& send : sends) send.wait();
  return right;
}

}  // namespace

TEST_CASE("point to point: a receive from any rank takes what comes, and says from whom") {
  auto sums = spawn({.nprocs = 4}, from_any, ShmGroup(4))[0];
  CHECK(sums == std::map<int, float>{{1, 20.f}, {2, 40.f}, {3, 60.f}});
}

TEST_CASE("point to point: two ranks that begin to send before they receive need not wait for each other") {
  for (bool shared : {false, true})
    CHECK(spawn({.nprocs = 2}, both_ways, ShmGroup(2), shared) == std::vector<int>{320, 320});
}

namespace {

/// What the receiver is told of messages that do not fit; and that they are still there.
std::vector<std::string> misfits(int rank, ShmGroup group, bool shared) {
  Communicator ranks = group.join(rank);
  std::vector<std::string> said;
  at::Tensor large = at::full({100'000}, 3.f), small = at::full({4}, 5, at::kLong);
  if (shared) share_memory_(large);
  if (rank == 0) {
    send(ranks, small, 1, 1);
    send_object(ranks, std::string("a value"), 1, 2);
    send(ranks, large, 1, 3);
    return said;
  }
  auto refuse = [&](auto&& call) {
    try {
      call();
      said.push_back("went through");
    } catch (const std::invalid_argument& error) {
      said.push_back(error.what());
    }
  };
  at::Tensor five = at::zeros({5}, at::kLong), four = at::zeros({4}, at::kDouble), hundred = at::zeros({100'000});
  refuse([&] { recv(ranks, five, 0, 1); });
  refuse([&] { recv_anysource(ranks, four, 1); });
  refuse([&] { recv_object<std::string>(ranks, 0, 1); });
  refuse([&] { recv(ranks, five, 0, 2); });
  refuse([&] { recv_object<int>(ranks, 0, 2); });
  refuse([&] { recv(ranks, hundred.slice(0, 1), 0, 3); });
  recv(ranks, five.slice(0, 1), 0, 1);
  said.push_back(fmt::format("{}", five.sum().item<int>()));
  said.push_back(recv_object<std::string>(ranks, 0, 2));
  recv(ranks, hundred, 0, 3);
  said.push_back(fmt::format("{}", hundred.sum().item<float>()));
  return said;
}

std::vector<std::string> wrong_arguments(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  std::vector<std::string> said;
  auto refuse = [&](auto&& call) {
    try {
      call();
      said.push_back("went through");
    } catch (const std::invalid_argument& error) {
      said.push_back(error.what());
    }
  };
  const at::Tensor one = at::ones({1});
  refuse([&] { send(ranks, one, rank); });
  refuse([&] { send(ranks, one, 2); });
  refuse([&] { recv(ranks, one, -1); });
  refuse([&] { recv(ranks, one, 1 - rank, -3); });
  refuse([&] { send(ranks, at::Tensor(), 1 - rank); });
  refuse([&] { send(ranks, at::eye(3).to_sparse(), 1 - rank); });
  refuse([&] { recv_object<int>(ranks, 2); });
  refuse([&] { send_object(ranks, 1, 1 - rank, -1); });
  return said;
}

}  // namespace

TEST_CASE("point to point: a receive that does not fit says what came, and the message stays for one that does") {
  for (bool shared : {false, true}) {
    auto said = spawn({.nprocs = 2}, misfits, ShmGroup(2), shared)[1];
    REQUIRE(said.size() == 9);
    CHECK_THAT(said[0],
               ContainsSubstring("recv of 40 bytes of Long from rank 0, tag 1: rank 0 has sent 32 bytes of Long"));
    CHECK_THAT(said[1], ContainsSubstring("recv of 32 bytes of Double from rank 0, tag 1") ||
                            ContainsSubstring("recv of 32 bytes of Double from any rank, tag 1"));
    CHECK_THAT(said[2], ContainsSubstring("recv_object of ") && ContainsSubstring("has sent 32 bytes of Long"));
    CHECK_THAT(said[3], ContainsSubstring("has sent a value of type ") && ContainsSubstring("string"));
    CHECK_THAT(said[4], ContainsSubstring("recv_object of int from rank 0, tag 2"));
    CHECK_THAT(said[5],
               ContainsSubstring("recv of 399996 bytes of Float") && ContainsSubstring("sent 400000 bytes of Float"));
    CHECK(said[6] == "20");
    CHECK(said[7] == "a value");
    CHECK(said[8] == "300000");
  }
}

TEST_CASE("point to point: ranks, tags and tensors that make no sense are refused at once") {
  auto said = spawn({.nprocs = 2}, wrong_arguments, ShmGroup(2))[1];
  REQUIRE(said.size() == 8);
  CHECK_THAT(said[0], ContainsSubstring("send: rank 1 is this rank itself"));
  CHECK_THAT(said[1], ContainsSubstring("send: rank 2 in a group of 2 ranks"));
  CHECK_THAT(said[2], ContainsSubstring("recv: rank -1 in a group of 2 ranks"));
  CHECK_THAT(said[3], ContainsSubstring("recv: tag -3"));
  CHECK_THAT(said[4], ContainsSubstring("send of an undefined tensor"));
  CHECK_THAT(said[5], ContainsSubstring("send of a Sparse tensor"));
  CHECK_THAT(said[6], ContainsSubstring("recv_object: rank 2 in a group of 2 ranks"));
  CHECK_THAT(said[7], ContainsSubstring("send_object: tag -1"));
}

namespace {

struct Item {
  std::string name;
  at::Tensor tensor;
  std::vector<int> numbers;
};

std::string objects(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  if (rank == 0) {
    at::Tensor shared = empty_shared({4}).fill_(1);
    send_object(ranks, Item{"first", shared, std::vector<int>(100'000, 4)}, 1);
    send_object(ranks, std::make_unique<int>(7), 1);
    recv(ranks, at::zeros({1}), 1);
    return fmt::format("{}", shared.sum().item<float>());  // the receiver has this memory
  }
  Item item = recv_object<Item>(ranks, 0);
  require(item.name == "first" && item.numbers == std::vector<int>(100'000, 4), "a value that arrived");
  item.tensor.fill_(2);
  auto [number, sender] = recv_object_anysource<std::unique_ptr<int>>(ranks);
  require(*number == 7 && sender == 0, "a value that moves only");
  send(ranks, at::ones({1}), 0);
  return "right";
}

struct Unwilling {};

}  // namespace
}  // namespace point_to_point_test

template <>
struct shoal::Codec<point_to_point_test::Unwilling> {
  using Unwilling = point_to_point_test::Unwilling;
  static constexpr std::uint64_t schema() { return schema_hash("Unwilling"); }
  static void encode(Encoder& encoder, const Unwilling&) {
    encoder.add(allocate_shared(5000));
    throw std::domain_error("not in this mood");
  }
  static Unwilling decode(Decoder&) { return {}; }
};

namespace point_to_point_test {
namespace {

std::string unwilling(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  std::string said;
  if (rank == 0) {
    try {
      send_object(ranks, Unwilling(), 1);
    } catch (const std::domain_error& error) {
      said = error.what();
    }
    send_object(ranks, 12, 1);
  } else {
    said = fmt::format("{}", recv_object<int>(ranks, 0));
  }
  return said;
}

}  // namespace

TEST_CASE("point to point: values of any type arrive, and shared tensors in them are the same memory") {
  CHECK(spawn({.nprocs = 2}, objects, ShmGroup(2)) == std::vector<std::string>{"8", "right"});
}

TEST_CASE("point to point: a value that its codec refuses was not sent") {
  CHECK(spawn({.nprocs = 2}, unwilling, ShmGroup(2)) == std::vector<std::string>{"not in this mood", "12"});
}

namespace {

/// Rank 0 gives up twice, once with each half of a large message; then both go on.
std::vector<std::string> too_late(int rank, ShmGroup group, bool shared, Event gave_up) {
  Communicator ranks = group.join(rank);
  std::vector<std::string> said;
  at::Tensor large = at::full({1'000'000}, 3.f);
  if (shared) share_memory_(large);
  if (rank == 0) {
    ranks.set_timeout(std::chrono::milliseconds(20));
    for (int i = 0; i < 2; ++i) try {
        i == 0 ? recv(ranks, large, 1, 1) : send(ranks, large, 1, 2);
      } catch (const TimeoutError& error) {
        said.push_back(error.what());
      }
    gave_up.set();
    ranks.set_timeout(std::chrono::minutes(5));
    send(ranks, large * 2, 1, 2);
    at::Tensor sum = at::ones({1});
    all_reduce(ranks, sum);
    said.push_back(fmt::format("{}", sum.item<float>()));
  } else {
    gave_up.wait();
    at::Tensor place = at::zeros({1'000'000});
    recv(ranks, place, 0, 2);  // not the one that was taken back
    said.push_back(fmt::format("{}", place[999'999].item<float>()));
    at::Tensor sum = at::ones({1});
    all_reduce(ranks, sum);
  }
  return said;
}

}  // namespace

TEST_CASE("point to point: what is not taken in time is taken back, and the group goes on") {
  for (bool shared : {false, true}) {
    auto said = spawn({.nprocs = 2}, too_late, ShmGroup(2), shared, Event());
    REQUIRE(said[0].size() == 3);
    CHECK_THAT(said[0][0], ContainsSubstring(
                               "recv of 4000000 bytes of Float from rank 1, tag 1: rank 1 did not come within 20 ms"));
    CHECK_THAT(said[0][1], ContainsSubstring("send to rank 1, tag 2: rank 1 did not come within 20 ms"));
    CHECK(said[0][2] == "2");
    CHECK(said[1] == std::vector<std::string>{"6"});
  }
}

namespace {

/// Four threads of each rank, each with a tag of its own, beside a thread that does collectives.
int many_threads(int rank, ShmGroup group) {
  at::set_num_threads(1);
  Communicator ranks = group.join(rank);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int tag = 0; tag < 4; ++tag)
    threads.emplace_back([&, tag] {
      for (int i = 0; i < 100; ++i) {
        const std::int64_t count = i % 10 == 0 ? 300'000 : 30;
        at::Tensor place = at::zeros({count});
        if (rank == 0) send(ranks, at::full({count}, float(i)), 1, tag);
        recv(ranks, place, 1 - rank, tag);
        if (rank == 1) send(ranks, place, 0, tag);
        right += at::equal(place, at::full({count}, float(i)));
      }
    });
  for (int i = 0; i < 100; ++i) ranks.barrier();
  for (std::thread& thread : threads) thread.join();
  return right;
}

}  // namespace

TEST_CASE("point to point: several threads of a rank send and receive at once, beside collectives") {
  CHECK(spawn({.nprocs = 2}, many_threads, ShmGroup(2)) == std::vector<int>{400, 400});
}

namespace {

/// torch's own ways: send, recv and recvAnysource with Work.
std::vector<std::string> by_c10d(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  std::vector<std::string> said;
  std::vector<at::Tensor> one{at::full({100'000}, float(rank + 1))}, place{at::zeros({100'000})};
  if (rank == 0) {
    auto work = process_group->recv(place, 2, 5);
    said.push_back(work->isCompleted() ? "done before it was sent" : "under way");
    process_group->barrier()->wait();
    require(work->wait() && work->isCompleted() && work->isSuccess() && !work->exception(), "a receive that is done");
    said.push_back(fmt::format("{} of rank {}", place[0][0].item<float>(), work->sourceRank()));
    work = process_group->recvAnysource(place, 6);
    work->wait();
    said.push_back(fmt::format("{} of rank {}", place[0][0].item<float>(), work->sourceRank()));
    work = process_group->recv(place, 1, 9);
    try {
      work->wait(std::chrono::milliseconds(10));
    } catch (const TimeoutError&) {
      said.push_back(work->isSuccess() ? "success" : "timed out");
    }
  } else {
    process_group->barrier()->wait();
    if (rank == 2) process_group->send(one, 0, 5)->wait();
    if (rank == 1) process_group->send(one, 0, 6)->wait();
  }
  process_group->barrier()->wait();
  return said;
}

}  // namespace

TEST_CASE("point to point: c10d's send, recv and recvAnysource return work that is under way until it is done") {
  CHECK(spawn({.nprocs = 3}, by_c10d, ShmGroup(3))[0] ==
        std::vector<std::string>{"under way", "3 of rank 2", "2 of rank 1", "timed out"});
}

namespace {

enum class Besides { send, receive, send_in_another_group, message_in_another_group };

/// What one rank has not waited for, another waits for, and comes only then to what the first waits for: a sum, or a message
/// of another group.
void wait_besides(int rank, ShmGroup group, ShmGroup second, Besides besides, Progress progress) {
  at::set_num_threads(1);
  auto ranks = init_process_group(group, rank, {.progress = progress});
  auto others = init_process_group(second, rank, {.progress = progress});
  const bool elsewhere = besides == Besides::send_in_another_group || besides == Besides::message_in_another_group;
  const auto& meeting = elsewhere ? others : ranks;
  constexpr std::int64_t kCount = 3'000'000;  // many chunks
  const bool waits = rank == (besides == Besides::receive ? 0 : 1);
  std::vector<at::Tensor> message{rank == 0 ? at::arange(kCount, at::kFloat) : at::zeros({kCount})};
  const auto transfer = rank == 0 ? ranks->send(message, 1, 7) : ranks->recv(message, 0, 7);
  if (waits) transfer->wait(std::chrono::seconds(40));
  std::vector<at::Tensor> sum{at::ones({5})};
  if (besides != Besides::message_in_another_group) {
    meeting->allreduce(sum)->wait();
  } else if (rank == 0) {
    meeting->recv(sum, 1, 8)->wait();
  } else {
    sum[0].mul_(2);
    meeting->send(sum, 0, 8)->wait();
  }
  transfer->wait();
  require(at::equal(message[0], at::arange(kCount, at::kFloat)), "the message");
  require(at::equal(sum[0], at::full({5}, 2.0)), "the sum");
}

}  // namespace

TEST_CASE("point to point: what is under way goes on while its rank waits for something else") {
  const auto besides =
      GENERATE(Besides::send, Besides::receive, Besides::send_in_another_group, Besides::message_in_another_group);
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  CHECK_NOTHROW(spawn({.nprocs = 2}, wait_besides, ShmGroup(2), ShmGroup(2), besides, progress));
}

}  // namespace point_to_point_test
