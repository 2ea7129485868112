// The last collectives of all ranks, read from outside, whoever of them lives.
#include <fmt/format.h>
#include <shoal/internal/ipc/layout/flight_record.h>
#include <shoal/internal/ipc/observe/flight_look.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/report/stuck_report.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/workers/train/communicator.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <vector>

#include "tests/ipc/sync/fixtures.h"
#include "tests/runtime/command/shoal_program.h"

using namespace shoal;
using namespace shoal::test;

namespace flight_recorder_test {

namespace {

SessionFile own_session() {
  auto file = SessionFile::of_process(::getpid());
  REQUIRE(file);
  return std::move(*file);
}

SeenGroup only_group(const SessionFile& file, std::size_t most = 1024) {
  const auto groups = look_at_groups(file, look_at(file), most);
  REQUIRE(groups.size() == 1);
  return groups[0];
}

void sum(Communicator& ranks, std::size_t floats) {
  std::vector<float> data(floats, 1);
  ranks.all_reduce({reinterpret_cast<std::byte*>(data.data()), floats * sizeof(float), nullptr}, c10::ScalarType::Float,
                   ReduceOp::sum);
}

/// What a rank does that others wait for.
__attribute__((noinline)) void evaluate_for_ever() {
  for (;;) {
    ::pause();
    asm volatile("" ::: "memory");
  }
}

/// Ranks as processes of this test.
std::vector<std::unique_ptr<Forked>> start_ranks(const ShmGroup& group,
                                                 const std::function<void(Communicator&)>& body) {
  std::vector<std::unique_ptr<Forked>> ranks;
  for (int rank = 0; rank < group.world_size(); ++rank)
    ranks.push_back(std::make_unique<Forked>([&, rank] {
      Communicator own = group.join(rank);
      body(own);
    }));
  return ranks;
}

bool waits_for(const SessionFile& file, int missing) {
  const auto stuck = find_stuck(only_group(file));
  return stuck && stuck->missing == std::vector<int>{missing} && stuck->call.call == 2;
}

}  // namespace

TEST_CASE("flight recorder: each rank's calls are there with name, size, type and number, and how they ended") {
  ShmGroup group(2);
  auto ranks = start_ranks(group, [](Communicator& own) {
    sum(own, 256);
    own.barrier();
    std::vector<std::byte> bytes(100'000);
    own.broadcast({bytes.data(), bytes.size(), nullptr}, 1);
    try {
      own.broadcast({bytes.data(), own.rank() == 0 ? 8u : 16u, nullptr}, 0);
    } catch (const std::invalid_argument&) {
    }
  });
  std::vector<pid_t> pids;
  for (auto& rank : ranks) {
    pids.push_back(rank->pid());
    CHECK(rank->join() == 0);
  }
  const SeenGroup seen = only_group(own_session());
  REQUIRE(seen.ranks.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const SeenRank& rank = seen.ranks[i];
    CHECK(rank.pid == pids[i]);
    CHECK(rank.left);
    CHECK(rank.calls == 4);
    REQUIRE(rank.last.size() == 4);
    CHECK(rank.last[0].name == "all_reduce");
    CHECK(rank.last[0].bytes == 1024);
    CHECK(rank.last[0].type == "Float");
    CHECK(rank.last[1].name == "barrier");
    CHECK(rank.last[1].type.empty());
    CHECK(rank.last[2].name == "broadcast");
    CHECK(rank.last[2].bytes == 100'000);
    for (std::size_t call = 0; call < 4; ++call) {
      CHECK(rank.last[call].call == call + 1);
      CHECK(rank.last[call].end >= rank.last[call].start);
      CHECK(rank.last[call].failed == (call == 3));
    }
  }
  CHECK_FALSE(find_stuck(seen));
}

TEST_CASE("flight recorder: the last thousand calls stay") {
  ShmGroup group(1);
  Communicator alone = group.join(0);
  for (int i = 0; i < 2500; ++i) sum(alone, 1);
  const SeenRank rank = only_group(own_session()).ranks[0];
  CHECK(rank.calls == 2500);
  REQUIRE(rank.last.size() >= 1000);
  for (std::size_t i = 0; i < rank.last.size(); ++i) CHECK(rank.last[i].call == 2500 - rank.last.size() + 1 + i);
}

TEST_CASE("flight recorder: who has not called what the others wait in is named, with where it is") {
  const SessionFile file = own_session();
  ShmGroup group(3);
  auto ranks = start_ranks(group, [](Communicator& own) {
    own.barrier();
    if (own.rank() == 2) evaluate_for_ever();
    sum(own, 256);
  });
  until([&] { return waits_for(file, 2); });
  const std::string who = fmt::format("rank 2 (pid {}) has not called all_reduce 2, in which rank ", ranks[2]->pid());
#ifndef __SANITIZE_THREAD__  // it holds back the signals by which threads are asked
  std::string report;
  // It may be on its way there still.
  until([&] {
    report = report_group(file, look_at(file), only_group(file, 10), 10);
    return report.find("it is in `flight_recorder_test::(anonymous namespace)::evaluate_for_ever()`") !=
           std::string::npos;
  });
  CHECK_THAT(report, StartsWith(who));
  CHECK_THAT(report, ContainsSubstring("ended barrier 1") && ContainsSubstring("all_reduce") &&
                         ContainsSubstring("1.0K Float"));
#endif
  const ProgramResult shown = run_program({kShoal, "top", "--collectives", "--last", "5", std::to_string(::getpid())});
  CHECK(shown.code == 0);
  CHECK_THAT(shown.output, ContainsSubstring("of 3 ranks: " + who));
  // What it had written stays when it is killed, and so does what the others wait for.
  ranks[2]->signal(SIGSTOP);
  ranks[2]->wait_until_stopped();
  CHECK_THAT(report_group(file, look_at(file), only_group(file, 10), 10),
             ContainsSubstring("nobody knows where: the process is stopped"));
  ranks[0]->kill();
  ranks[1]->kill();
  ranks[2]->kill();
  const SeenGroup dead = only_group(file);
  CHECK(dead.ranks[0].calls == 2);
  CHECK(dead.ranks[0].last.back().name == "all_reduce");
  CHECK(dead.ranks[2].calls == 1);
  CHECK_FALSE(dead.ranks[0].alive);
  CHECK_FALSE(find_stuck(dead));
}

#ifndef __SANITIZE_THREAD__
TEST_CASE("flight recorder: a time-out says who is missing and where that is") {
  ShmGroup group(2);
  auto ranks = start_ranks(group, [](Communicator& own) {
    own.barrier();
    if (own.rank() == 1) evaluate_for_ever();
    own.set_timeout(std::chrono::milliseconds(200));
    try {
      sum(own, 4);
    } catch (const TimeoutError& error) {
      const std::string said = error.what();
      // Should it be on its way there still, the first of its calls that is the program's is another one.
      if (said.find("rank 1 is missing; rank 1 (pid ") == std::string::npos ||
          said.find("has not called all_reduce 2") == std::string::npos ||
          said.find("; it is in `") == std::string::npos)
        throw;
      return;
    }
    throw Error("nothing was thrown");
  });
  CHECK(ranks[0]->join() == 0);
}
#endif

TEST_CASE("flight recorder: a group of any bytes is no more than that") {
  ShmGroup group(4);
  Communicator own = group.join(0);
  const int from = SessionCore::current().descriptors().memory;
  const SessionFile original = own_session();
  const std::uint64_t payload = only_group(original).payload;
  struct stat status{};
  REQUIRE(::fstat(from, &status) == 0);
  Fd copy(::memfd_create("copy", MFD_CLOEXEC));
  REQUIRE(::ftruncate(copy.get(), status.st_size) == 0);
  std::vector<char> page(4096);
  for (off_t at = 0; (at = ::lseek(from, at, SEEK_DATA)) >= 0; at += off_t(page.size())) {
    REQUIRE(::pread(from, page.data(), page.size(), at) == ssize_t(page.size()));
    REQUIRE(::pwrite(copy.get(), page.data(), page.size(), at) == ssize_t(page.size()));
  }
  GroupHead head{};
  REQUIRE(original.read(payload, head));
  std::mt19937_64 random(test_seed());
  const SessionFile file{Fd(::dup(copy.get()))};
  int shown = 0;
  for (int round = 0; round < 200 * test_scale(); ++round) {
    GroupHead damaged = head;
    if (round % 4 == 1) damaged.world_size = std::uint32_t(random());
    if (round % 4 == 2) damaged.flights = random() >> (random() % 64);
    REQUIRE(::pwrite(copy.get(), &damaged, sizeof damaged, off_t(payload)) == ssize_t(sizeof damaged));
    std::vector<std::uint64_t> log(sizeof(FlightLog) / 8);
    for (auto& word : log) word = random() >> (random() % 64);
    if (round % 2 == 0) log[0] = random() % 2000;
    for (std::uint64_t i = 0; round % 2 == 0 && i < FlightLog::kRecords; ++i)
      log[(64 + i * 64) / 8] = log[0] - log[0] % FlightLog::kRecords + i;  // records that count
    for (int rank = 0; rank < 4; ++rank)
      REQUIRE(::pwrite(copy.get(), log.data(), sizeof(FlightLog),
                       off_t(payload + head.flights + std::uint64_t(rank) * sizeof(FlightLog))) ==
              ssize_t(sizeof(FlightLog)));
    const SessionView view = look_at(file);
    for (const SeenGroup& seen : look_at_groups(file, view, 100)) {
      for (const std::string& line : tell_stuck(view, seen, {}, {})) CHECK(line.size() < 500);
      shown += flight_table(view, seen, 100).empty() ? 0 : 1;
    }
  }
  CHECK(shown > 0);
}

}  // namespace flight_recorder_test
