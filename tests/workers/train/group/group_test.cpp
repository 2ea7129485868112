#include <fmt/format.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/event.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/communicator.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/said.h"
#include "tests/workers/fork_refusal.h"

using namespace shoal;
using namespace shoal::test;
using c10::ScalarType;

namespace group_test {

TEST_CASE("group: sizes that make no sense are refused") {
  CHECK_THROWS_WITH(ShmGroup(0), ContainsSubstring("a group of 0 ranks: it takes 1 to 256"));
  CHECK_THROWS_AS(ShmGroup(-1), std::invalid_argument);
  CHECK_THROWS_AS(ShmGroup(257), std::invalid_argument);
  CHECK(ShmGroup(256).world_size() == 256);
}

TEST_CASE("group: a rank that is not there, or taken, cannot be joined") {
  ShmGroup group(2);
  CHECK_THROWS_WITH(group.join(2), ContainsSubstring("rank 2 of a group of 2: ranks go from 0 to 1"));
  CHECK_THROWS_AS(group.join(-1), std::invalid_argument);
  Communicator first = group.join(0);
  CHECK_THROWS_WITH(group.join(0), ContainsSubstring("rank 0 of this group was joined before"));
  Communicator second = group.join(1);
  CHECK(second.rank() == 1);
}

TEST_CASE("group: one rank alone gets its own data back") {
  Communicator alone = ShmGroup(1).join(0);
  std::vector<float> data(100'000, 3);
  Region region{reinterpret_cast<std::byte*>(data.data()), data.size() * 4, nullptr};
  alone.all_reduce(region, ScalarType::Float, ReduceOp::avg);
  alone.broadcast(region, 0);
  alone.barrier();
  CHECK(data == std::vector<float>(100'000, 3));
}

TEST_CASE("group: arguments that fit no rank are refused before anything is sent") {
  Communicator alone = ShmGroup(1).join(0);
  std::byte bytes[12]{};
  CHECK_THROWS_WITH(alone.broadcast({bytes, 12, nullptr}, 1), ContainsSubstring("root 1 in a group of 1"));
  CHECK_THROWS_WITH(alone.all_reduce({bytes, 11, nullptr}, ScalarType::Float, ReduceOp::sum),
                    ContainsSubstring("11 bytes are no whole number of Float"));
  CHECK_THROWS_WITH(alone.all_gather({bytes, 12, nullptr}, {}), ContainsSubstring("0 outputs in a group of 1"));
  CHECK_THROWS_WITH(alone.scatter({bytes, 12, nullptr}, bytes, 8, 0),
                    ContainsSubstring("12 bytes are not 1 parts of 8"));
}

namespace {

/// What moves bytes, told whose they are.
void move_typed(Communicator& ranks, Region region, int about, ScalarType type) {
  std::vector<std::byte> place(region.bytes * 3);
  std::vector<std::byte*> outputs;
  for (std::size_t i = 0; i < 3; ++i) outputs.push_back(place.data() + i * region.bytes);
  if (about == 4) ranks.broadcast(region, 0, type);
  if (about == 5) ranks.all_gather(region, outputs, type);
  if (about == 6) ranks.gather(region, ranks.rank() == 0 ? outputs : std::vector<std::byte*>(), 0, type);
  if (about == 7) {
    const Region parts = ranks.rank() == 0 ? Region{place.data(), place.size(), nullptr} : Region{};
    ranks.scatter(parts, region.data, region.bytes, 0, type);
  }
}

std::string disagree(int rank, ShmGroup group, int about) {
  Communicator ranks = group.join(rank);
  std::vector<float> data(1000, 1);
  Region region{reinterpret_cast<std::byte*>(data.data()), data.size() * 4, nullptr};
  std::string complaint;
  try {
    const bool odd = rank == 2;
    if (about == 0 && odd)
      ranks.broadcast(region, 0);
    else if (about == 1)
      ranks.all_reduce({region.data, odd ? 2000u : 4000u, nullptr}, ScalarType::Float, ReduceOp::sum);
    else if (about == 2)
      ranks.all_reduce(region, odd ? ScalarType::Int : ScalarType::Float, ReduceOp::sum);
    else if (about == 3)
      ranks.broadcast(region, odd ? 1 : 0);
    else if (about >= 4)
      move_typed(ranks, region, about, odd ? ScalarType::Int : ScalarType::Float);
    else
      ranks.all_reduce(region, ScalarType::Float, ReduceOp::sum);
  } catch (const CollectiveMismatch& error) {
    complaint = error.what();
  }
  // The group goes on.
  std::fill(data.begin(), data.end(), 1);
  ranks.all_reduce(region, ScalarType::Float, ReduceOp::sum);
  return data == std::vector<float>(1000, 3) ? complaint : "wrong sum afterwards";
}

}  // namespace

TEST_CASE("group: ranks that call different things are all told who called what, and can go on") {
  const std::vector<std::string> odd_calls{
      "broadcast(4000 bytes, root 0)",     "all_reduce(2000 bytes, sum of Float)", "all_reduce(4000 bytes, sum of Int)",
      "broadcast(4000 bytes, root 1)",     "broadcast(4000 bytes of Int, root 0)", "all_gather(4000 bytes of Int)",
      "gather(4000 bytes of Int, root 0)", "scatter(12000 bytes of Int, root 0)"};
  for (int about = 0; about < int(odd_calls.size()); ++about) {
    auto complaints = spawn({.nprocs = 3}, disagree, ShmGroup(3), about);
    for (const std::string& complaint : complaints)
      CHECK_THAT(complaint, ContainsSubstring(odd_calls[std::size_t(about)]));
    CHECK_THAT(complaints[0], ContainsSubstring("rank 0 called") && ContainsSubstring("where rank 2 called"));
  }
}

namespace {

std::string leave_early(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  ranks.barrier();
  if (rank == 1) return "left";
  try {
    ranks.barrier();
  } catch (const PeerDied& error) {
    return error.what();
  }
  return "";
}

std::string wait_in_vain(int rank, ShmGroup group) {
  if (rank == 1) return "never joined";
  Communicator ranks = group.join(rank);
  ranks.set_timeout(std::chrono::milliseconds(50));
  try {
    ranks.barrier();
  } catch (const TimeoutError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("group: a rank that leaves is named to those that wait for it") {
  auto said = spawn({.nprocs = 2}, leave_early, ShmGroup(2));
  CHECK_THAT(said[0], ContainsSubstring("barrier: rank 1") && ContainsSubstring("left the group"));
}

TEST_CASE("group: waiting for a rank that never comes ends with the timeout") {
  auto said = spawn({.nprocs = 2}, wait_in_vain, ShmGroup(2));
  CHECK_THAT(said[0], ContainsSubstring("barrier: not all ranks came within"));
}

TEST_CASE("group: who has not joined is named in one line of the log, by whichever rank waits, before it gives up") {
  for (const int others : {1, 2}) {
    ShmGroup group(1 + others + 1);
    std::vector<Event> joined(2);
    const auto wait = [&](int rank) {
      Communicator ranks = group.join(rank);
      ranks.set_timeout(std::chrono::milliseconds(100));
      joined[std::size_t(rank)].set();
      joined[std::size_t(1 - rank)].wait();  // neither of the two is absent for the other
      try {
        ranks.barrier();
      } catch (const Error&) {  // a time-out of its own, or of another one
        return;
      }
      throw Error("the barrier was passed");
    };
    const std::string said = said_by([&] {
      Forked other([&] { wait(0); });
      wait(1);
      if (other.join() != 0) throw Error("rank 0 has failed");
    });
    const std::string line = others == 1 ? "barrier: rank 2 of this group of 3 has not joined yet: is it started? Rank "
                                         : "barrier: ranks 2, 3 of this group of 4 have not joined yet";
    INFO(said);
    CHECK(times_in(said, line) == 1);
    CHECK(times_in(said, "not joined yet") == 1);
  }
}

namespace {

/// Rank 0 gives up waiting for rank 2; rank 1 comes when it has, and rank 2 when rank 1 knows.
std::string come_late(int rank, ShmGroup group, std::vector<Event> told) {
  Communicator ranks = group.join(rank);
  ranks.barrier();
  if (rank != 0) told[std::size_t(rank) - 1].wait();
  std::string said = "went through";
  for (int i = 0; i < 2; ++i) {
    // Long enough for every machine: that it is not waited out is seen by what is said.
    ranks.set_timeout(rank == 0 ? std::chrono::milliseconds(50) : std::chrono::seconds(20));
    try {
      ranks.barrier();
    } catch (const TimeoutError& error) {
      if (i == 1 && said != error.what()) return "the second call said something else";
      said = error.what();
    }
  }
  told[std::size_t(rank)].set();
  told.back().wait();  // nobody leaves before all have seen that rank 0 gave up, not that it left
  return said;
}

std::string give_up_and_leave(int rank, ShmGroup group, Event left) {
  {
    Communicator ranks = group.join(rank);
    ranks.barrier();
    if (rank == 1) left.wait();
    ranks.set_timeout(rank == 0 ? std::chrono::milliseconds(50) : std::chrono::seconds(20));
    try {
      ranks.barrier();
    } catch (const Error& error) {
      if (rank == 1) return error.what();
    }
  }
  left.set();
  return "left";
}

}  // namespace

TEST_CASE("group: a rank that gave up has broken the group: who comes later is told so at once") {
  std::vector<Event> told(3);
  ShmGroup group(3);
  std::vector<Process<std::string>> processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.emplace_back(ProcessOptions{.name = fmt::format("rank{}", rank)}, come_late, rank, group, told);
    processes.back().start();
  }
  for (auto& process : processes) {
    std::string said = process.result();
    if (&process == &processes[0])
      CHECK_THAT(said, ContainsSubstring("barrier: not all ranks came within 50 ms: ranks 1, 2 are missing"));
    else
      CHECK_THAT(said, ContainsSubstring(fmt::format("barrier: rank 0 (process {}) gave up", processes[0].pid())));
  }
}

TEST_CASE("group: that a rank gave up is known when it is gone, too") {
  auto said = spawn({.nprocs = 2}, give_up_and_leave, ShmGroup(2), Event());
  CHECK_THAT(said[1], ContainsSubstring("barrier: rank 0 (process ") && ContainsSubstring("gave up"));
}

TEST_CASE("group: a forked copy of a rank can do nothing, also not leave") {
  if (test::fork_is_refused()) return;
  ShmGroup group(1);
  Communicator alone = group.join(0);
  auto copy = std::make_unique<Communicator>(std::move(alone));
  Communicator* rank = copy.get();
  auto in_child = [rank] {
    std::string said;
    try {
      rank->barrier();
    } catch (const Error& error) {
      said = error.what();
    }
    rank->~Communicator();  // as if it went out of scope there
    return said;
  };
  // The threads that other tests' tensors have started are not needed there.
  auto said = spawn({.nprocs = 1, .start_method = StartMethod::fork, .fork_despite_threads = true},
                    [&](int) { return in_child(); });
  CHECK_THAT(said[0], ContainsSubstring("forked copy"));
  copy->barrier();
}

TEST_CASE("group: a handle that is none is refused where it arrives") {
  Encoder encoder;
  Hold block = allocate_shared(100);
  encoder.write(encoder.add(block));
  encoder.write(std::uint32_t(0));
  Decoder::Handles handles;
  handles.push_back(block.share());
  Decoder decoder(encoder.bytes(), std::move(handles));
  CHECK_THROWS_AS(decode<ShmGroup>(decoder), DecodeError);
}

}  // namespace group_test
