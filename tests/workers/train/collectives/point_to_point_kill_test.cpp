#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/point_to_point.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace point_to_point_kill_test {

namespace {

constexpr int kVictim = 1;

/// Every way that a message can go, in both directions, a few times.
void exchange(Communicator& ranks, int times) {
  const int other = 1 - ranks.rank();
  for (int i = 0; i < times; ++i)
    for (int sender : {0, 1})
      for (std::int64_t count : {4, 2'000, 100'000, 400'000})
        for (bool shared : {false, true}) {
          at::Tensor tensor = at::full({count}, float(i));
          if (shared) share_memory_(tensor);
          if (ranks.rank() == sender) {
            send(ranks, tensor, other, i);
            send_object(ranks, std::string(count < 10 ? 4 : 5000, 'x'), other, i);
          } else {
            recv(ranks, tensor, other, i);
            recv_object<std::string>(ranks, other, i);
          }
        }
}

/// What the survivor saw; and that it can still send to the third.
std::string survive(int rank, ShmGroup group, std::string label, int skip) {
  if (rank == kVictim) kill_at(label.c_str(), skip);
  Communicator ranks = group.join(rank);
  std::string said;
  if (rank == 2) {
    said = recv_object<std::string>(ranks, 0);
  } else {
    try {
      exchange(ranks, 4);
      kill_at("nowhere");
    } catch (const PeerDied& death) {
      said = death.what();
    }
    if (rank == 0) send_object(ranks, std::string("from 0"), 2);
  }
  return said;
}

}  // namespace

TEST_CASE("point to point: a rank killed anywhere in a message is named to the other, and nothing of it is left") {
  const std::size_t before = heap_bytes_in_use();
  int killed = 0;
  for (const char* label : {"mail.put", "mail.offered", "mail.fetched", "mail.taken", "mail.copied",
                            "mail.chunk.copied", "mail.chunk.filled", "ring.put.claimed", "ring.put.written",
                            "ring.put.published", "ring.get.taken", "ring.get.read", "event_word.cleared"})
    for (int skip : {0, 1, 5}) {
      INFO(label << ", pass " << skip);
      {
        ShmGroup group(3);
        std::vector<Process<std::string>> processes;
        for (int rank = 0; rank < 3; ++rank) {
          processes.emplace_back(ProcessOptions{.name = fmt::format("rank{}", rank)}, survive, rank, group,
                                 std::string(label), skip);
          processes.back().start();
        }
        for (auto& process : processes) process.join();
        const bool was_killed = processes[kVictim].exitcode() == -SIGKILL;
        killed += was_killed;
        const std::string said = processes[0].result();
        if (was_killed)
          CHECK_THAT(said, ContainsSubstring(fmt::format("rank 1 (process {}) died", processes[kVictim].pid())) ||
                               ContainsSubstring("rank 1 (process 0) died"));
        else
          CHECK(said.empty());
        CHECK(processes[2].result() == "from 0");
      }
      Session::current().reclaim_all();
      REQUIRE(heap_bytes_in_use() == before);
    }
  CHECK(killed > 25);
}

namespace {

/// Rank 1 sends and dies, or leaves; rank 0 receives afterwards.
std::vector<std::string> last_words(int rank, ShmGroup group, bool dies, bool any) {
  Communicator ranks = group.join(rank);
  if (rank == 1) {
    send(ranks, at::full({3}, 4.f), 0);
    send(ranks, at::full({100'000}, 5.f), 0);
    if (dies) ::raise(SIGKILL);
    return {};
  }
  std::vector<std::string> said;
  try {
    while (true) ranks.barrier();
  } catch (const PeerDied&) {
  }
  for (std::int64_t count : {3, 100'000, 3}) try {
      at::Tensor place = at::zeros({count});
      any ? void(recv_anysource(ranks, place)) : recv(ranks, place, 1);
      said.push_back(fmt::format("{}", place[2].item<float>()));
    } catch (const PeerDied& death) {
      said.push_back(death.what());
    }
  try {
    send(ranks, at::ones({1}), 1);
  } catch (const PeerDied& death) {
    said.push_back(death.what());
  }
  return said;
}

}  // namespace

TEST_CASE("point to point: what a rank has sent can be received when it is gone, and nothing else is waited for") {
  for (bool dies : {false, true})
    for (bool any : {false, true}) {
      ShmGroup group(2);
      Process<std::vector<std::string>> first({}, last_words, 0, group, dies, any),
          second({}, last_words, 1, group, dies, any);
      first.start();
      second.start();
      const auto said = first.result();
      second.join();
      REQUIRE(said.size() == 4);
      CHECK(said[0] == "4");
      CHECK(said[1] == "5");
      CHECK_THAT(said[2], ContainsSubstring("rank 1 (process ") && ContainsSubstring(dies ? "died" : "left the group"));
      CHECK_THAT(said[3],
                 ContainsSubstring("send to rank 1, tag 0: rank 1") && ContainsSubstring(dies ? "died" : "left"));
    }
}

}  // namespace point_to_point_kill_test
