// How long after a rank was killed do all others know, which wait for it in a collective? Also where the one that looks
// after the dead is the one that dies.
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/init.h>
#include <shoal/workers/train/communicator.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "bench/report/report.h"

namespace {

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000ll + time.tv_nsec;
}

/// In a process of its own: waits for the victim until it knows of its death, and says when that was.
void survive(const shoal::ShmGroup& group, int rank, shoal::Queue<int>& ready, shoal::Queue<std::int64_t>& known) {
  shoal::Communicator ranks = group.join(rank);
  ranks.barrier();
  ready.put(rank);
  try {
    ranks.barrier();
  } catch (const shoal::PeerDied&) {
    known.put(now());
  }
}

/// Milliseconds from the kill until the last rank knows. This process waits for nobody's end meanwhile, so that none of
/// it is its doing.
double kill_one(int world, int victim) {
  shoal::SessionCore& session = shoal::SessionCore::current();
  session.self();
  const shoal::ShmGroup group(world);
  shoal::Queue<int> ready(world);
  shoal::Queue<std::int64_t> known(world);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      session.self();
      session.adopt_inherited_holds();
      if (rank != victim) {
        survive(group, rank, ready, known);
      } else {
        shoal::Communicator own = group.join(rank);
        own.barrier();
        ready.put(rank);
        for (;;) ::pause();
      }
      session.leave();
      ::_exit(0);
    }
    ranks.push_back(child);
  }
  for (int i = 0; i < world; ++i) ready.get();
  // Until they all sleep; a different part of their naps each time.
  std::this_thread::sleep_for(std::chrono::milliseconds(300 + std::rand() % 100));
  const std::int64_t killed = now();
  ::kill(ranks[std::size_t(victim)], SIGKILL);
  std::int64_t last = 0;
  for (int i = 1; i < world; ++i) last = std::max(last, known.get());
  for (const pid_t rank : ranks) ::waitpid(rank, nullptr, 0);
  session.reclaim_all();
  return double(last - killed) * 1e-6;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const int kills = argc > 1 ? std::atoi(argv[1]) : 100;
  shoal::bench::Report report("peer_death");
  for (const int world : {2, 8})
    for (const bool first : {false, true}) {
      std::vector<double> samples;
      for (int i = 0; i < kills; ++i) samples.push_back(kill_one(world, first ? 0 : world - 1));
      const std::string case_name = fmt::format("{} ranks, the {} one is killed", world, first ? "first" : "last");
      for (const int percent : {50, 99}) report.add_quantile("shoal", case_name, "ms", samples, percent);
      report.ask_value(case_name, "p50", 10);
    }
}
