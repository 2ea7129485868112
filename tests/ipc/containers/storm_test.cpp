// Processes that use one dictionary, list and name space at once and are killed at any moment.
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/arena.h>
#include <shoal/ipc/dict.h>
#include <shoal/ipc/list.h>
#include <shoal/ipc/namespace.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/wait.h>

#include <boost/interprocess/containers/vector.hpp>
#include <numeric>

#include "tests/ipc/containers/sample.h"
#include "tests/ipc/sync/fixtures.h"
#include "tests/support/sanitized.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

namespace {

constexpr int kStormers = 4, kStormKeys = 40, kKillsPerRound = 50;

/// Seen by all; nobody's death loses it.
struct StormBoard {
  std::atomic<bool> stop;
  std::atomic<int> kill_label[kStormers];
  std::atomic<std::uint64_t> operations, torn, misplaced;
  std::atomic<long> begun, done;        // additions to one value
  std::atomic<long> appended, removed;  // of the list
};

/// Of numbers, and their sum.
struct Ledger {
  explicit Ledger(const ArenaAllocator<std::byte>& allocator) : numbers(allocator) {}
  boost::interprocess::vector<long, ArenaAllocator<long>> numbers;
  long sum = 0;
  bool is_whole() const { return std::accumulate(numbers.begin(), numbers.end(), 0l) == sum; }
};

struct Playground {
  Dict<int, Sample> dict;
  Dict<int, long> sums{{0, 0}};
  Dict<std::string, SharedBytes> mortal;
  List<Sample> list;
  Namespace names;
  Arena<Ledger> arena;
  InHeap<StormBoard> board;
};

/// The key is in the number, so that a value under another's key is seen.
int number_for(int key, std::mt19937& random) { return key + kStormKeys * int(random() % 1000); }

class Stormer {
 public:
  Stormer(Playground& ground, int index, unsigned seed, const std::vector<std::string>& labels)
      : ground_(ground), board_(*ground.board), index_(index), random_(seed), labels_(labels) {}

  void run() {
    while (!board_.stop) {
      if (const int label = board_.kill_label[index_].exchange(-1); label >= 0)
        kill_at(labels_[std::size_t(label)].c_str(), int(random_() % 4));
      operate();
      ++board_.operations;
    }
  }

 private:
  void check(int key, const std::optional<Sample>& sample) {
    if (!sample) return;
    if (!is_whole(*sample)) ++board_.torn;
    if (sample->number % kStormKeys != key) ++board_.misplaced;
  }

  void operate() {
    const int key = int(random_() % kStormKeys);
    switch (random_() % 17) {
      case 0:
      case 1:
      case 2:
        return ground_.dict.set(key, make_sample(number_for(key, random_)));
      case 3:
      case 4:
        return check(key, ground_.dict.try_get(key));
      case 5:
        return check(key, ground_.dict.try_pop(key));
      case 6:
        ground_.dict.update(
            key,
            [&](const Sample& sample) {
              check(key, sample);
              return make_sample(number_for(key, random_));
            },
            make_sample(key));
        return;
      case 7:
        for (const auto& [k, sample] : ground_.dict.snapshot()) check(k % kStormKeys, sample);
        return;
      case 8:
        if (random_() % 20 == 0) ground_.dict.clear();
        return;
      case 9:
      case 10: {
        ++board_.begun;
        ground_.sums.update(0, [](long sum) { return sum + 1; });
        ++board_.done;
        return;
      }
      case 11: {
        const int many = int(random_() % 30);  // of keys nobody else has, for growth
        for (int i = 0; i < many; ++i)
          ground_.dict.set(kStormKeys * (1 + index_) + kStormKeys * kStormers * i + key, make_sample(key));
        for (int i = 0; i < many; ++i) ground_.dict.erase(kStormKeys * (1 + index_) + kStormKeys * kStormers * i + key);
        return;
      }
      case 12:
        return use_list();
      case 13: {
        const std::string name = "name" + std::to_string(key % 5);
        if (random_() % 2) return ground_.names.set(name, make_sample(number_for(key % 5, random_)));
        const auto found = ground_.names.try_get<Sample>(name);
        if (found && (!is_whole(*found) || found->number % kStormKeys != key % 5)) ++board_.torn;
        return;
      }
      case 14:
        return ground_.mortal.set(std::to_string(key % 8), SharedBytes(100 + std::size_t(key)),
                                  {.dies_with_writer = true});
      case 15:
        if (!ground_.arena.read()->is_whole()) ++board_.torn;
        return ground_.arena.change([&](Ledger& ledger) {
          if (ledger.numbers.size() > 500) {
            ledger.sum -= ledger.numbers.front();
            ledger.numbers.erase(ledger.numbers.begin());
          }
          ledger.numbers.push_back(key);
          ledger.sum += key;
        });
      default:
        (void)ground_.mortal.size();
        if (random_() % 8 == 0) Session::current().reclaim_all();
    }
  }

  void use_list() {
    try {
      switch (random_() % 6) {
        case 0:
        case 1:
          ground_.list.append(make_sample(int(random_() % 1000)));
          ++board_.appended;
          return;
        case 2:
          check_whole(ground_.list.pop());
          ++board_.removed;
          return;
        case 3:
          check_whole(ground_.list.pop(0));
          ++board_.removed;
          return;
        case 4:
          return ground_.list.reverse();
        default:
          for (const Sample& sample : ground_.list.items()) check_whole(sample);
      }
    } catch (const std::out_of_range&) {
    }
  }
  void check_whole(const Sample& sample) {
    if (!is_whole(sample)) ++board_.torn;
  }

  Playground& ground_;
  StormBoard& board_;
  int index_;
  std::mt19937 random_;
  const std::vector<std::string>& labels_;
};

}  // namespace

TEST_CASE("containers: whoever is killed wherever, no value is torn, no addition is lost, and no byte") {
  std::vector<std::string> labels = container_kill_points();
  for (const std::string& label : all_kill_points())  // and what they pass besides
    for (const char* room : {"block.", "heap.", "lock.", "event_word.", "reclaim."})
      if (label.starts_with(room)) labels.push_back(label);
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::size_t before = heap_bytes_in_use();
  int kills = 0, by_label = 0;
  std::uint64_t operations = 0;
  for (int round = 0; round < rounds(3) * test_scale(); ++round) {
    CAPTURE(round);
    {
      auto ground = std::make_unique<Playground>();
      StormBoard& board = *ground->board;
      std::unique_ptr<Forked> workers[kStormers];
      const auto start = [&](int index) {
        board.kill_label[index] = -1;
        const unsigned worker_seed = random();
        workers[index].reset();
        workers[index] =
            std::make_unique<Forked>([&, index, worker_seed] { Stormer(*ground, index, worker_seed, labels).run(); });
      };
      for (int i = 0; i < kStormers; ++i) start(i);
      for (int kill = 0; kill < kKillsPerRound; ++kill) {
        const int victim = int(random() % kStormers);
        const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 4000);
        while (std::chrono::steady_clock::now() < until) ::sched_yield();  // any moment
        if (random() % 2) {
          board.kill_label[victim] = int(random() % labels.size());
          // It dies there by itself, unless it does not come by: then at any moment.
          const auto deadline = std::chrono::steady_clock::now() + 50ms;
          siginfo_t died{};
          while (std::chrono::steady_clock::now() < deadline && died.si_pid == 0)
            ::waitid(P_PID, id_t(workers[victim]->pid()), &died, WEXITED | WNOHANG | WNOWAIT);
          by_label += died.si_pid != 0;
        } else if (random() % 2) {
          // It comes late: what it was about to do it does when the others have gone on, or not at all.
          ::kill(workers[victim]->pid(), SIGSTOP);
          const auto late = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 3000);
          while (std::chrono::steady_clock::now() < late) ::sched_yield();
          if (random() % 2) {
            ::kill(workers[victim]->pid(), SIGCONT);
            continue;
          }
        }
        workers[victim]->kill();
        ++kills;
        if (random() % 2) Session::current().reclaim_all();  // else a survivor does, or the next one
        start(victim);
      }
      board.stop = true;
      for (auto& worker : workers) CHECK(worker->join() == 0);
      for (auto& worker : workers) worker.reset();
      Session::current().reclaim_all();
      CHECK(board.torn == 0);
      CHECK(board.misplaced == 0);
      const long sum = ground->sums.get(0);
      CHECK(sum >= board.done);
      CHECK(sum <= board.begun);
      CHECK(board.begun - board.done <= kKillsPerRound);
      const long left = long(ground->list.size());
      CHECK(left >= board.appended - board.removed - kKillsPerRound);
      CHECK(left <= board.appended - board.removed + kKillsPerRound);
      CHECK(ground->mortal.empty());
      CHECK(ground->arena.read()->is_whole());
      for (const auto& [key, sample] : ground->dict.snapshot()) {
        REQUIRE(is_whole(sample));
        REQUIRE(sample.number % kStormKeys == key % kStormKeys);
      }
      operations += board.operations;
    }
    Session::current().reclaim_all();
    REQUIRE(heap_bytes_in_use() == before);
  }
  fmt::print("containers: seed {}: {} kills, {} of them at a marked point, {} operations\n", seed, kills, by_label,
             operations);
}
