// Processes that do everything at once and are killed at any moment: what survivors may rely on holds.
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/shared_bytes.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "tests/ipc/base/kill_labels.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"
#include "tests/support/sanitized.h"

using namespace shoal;
using namespace std::chrono_literals;
using shoal::test::Forked;

namespace {

constexpr int kWorkers = 4;
constexpr int kKillsPerRound = 50;
constexpr std::uint32_t kMostMessages = 1u << 20;

/// What became of a message, written by those who put and get it.
enum Fate : std::uint8_t { kIntended = 1, kPut = 2, kReceived = 4 };

/// Seen by all; lives in the heap, so that nobody's death loses it.
struct Board {
  std::atomic<bool> stop;
  std::atomic<std::uint32_t> next_message;
  std::atomic<std::uint32_t> torn, twice, wrong_owner;
  std::atomic<std::int64_t> counter;  // under the lock
  std::atomic<std::uint32_t> inside;  // who has the lock
  struct Worker {
    std::atomic<int> kill_label;  // index, -1 for none
    std::atomic<std::uint64_t> operations;
    std::atomic<std::uint64_t> slowest;  // longest operation, ns
  } workers[kWorkers];
  std::atomic<std::uint8_t> fate[kMostMessages];
};

/// A message that shows when it is not whole.
struct Message {
  std::uint32_t number;
  std::string text;
};

Message make_message(std::uint32_t number, std::size_t size) {
  return {number, std::string(size, char('a' + number % 26))};
}

bool is_whole(const Message& message) {
  char expected = char('a' + message.number % 26);
  return message.text.find_first_not_of(expected) == std::string::npos;
}

std::uint64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::uint64_t(time.tv_sec) * 1'000'000'000 + std::uint64_t(time.tv_nsec);
}

/// What all of a round share.
struct Playground {
  Queue<Message> queue{16};
  Queue<Message> bounded{QueueOptions{.capacity = 64, .byte_capacity = 20'000}};
  Queue<std::pair<std::uint32_t, SharedBytes>> loans{8};
  Queue<Queue<Message>> queues{4};
  Pipe<Message> pipe{PipeOptions{.capacity = 8}};
  Lock lock;
  SharedBytes memory{sizeof(Board)};
  Board& board = *new (memory.data()) Board{};
};

class Worker {
 public:
  Worker(Playground& ground, int index, unsigned seed, const std::vector<std::string>& labels)
      : ground_(ground), board_(ground.board), self_(board_.workers[index]), random_(seed), labels_(labels) {}

  void run() {
    while (!board_.stop) {
      if (int label = self_.kill_label.exchange(-1); label >= 0)
        kill_at(labels_[std::size_t(label)].c_str(), int(random_() % 2));
      const std::uint64_t start = now();
      operate();
      self_.operations.fetch_add(1);
      const std::uint64_t took = now() - start;
      if (took > self_.slowest) self_.slowest = took;
    }
  }

  /// Takes all that is left.
  void drain() {
    const bool closed = ground_.pipe.first.closed();
    while (auto message = ground_.queue.try_get()) received(*message);
    while (auto message = ground_.bounded.try_get()) received(*message);
    while (auto loan = ground_.loans.try_get()) received(*loan);
    while (auto queue = ground_.queues.try_get())
      while (auto message = queue->try_get()) received(*message);
    if (closed) return;
    while (auto message = ground_.pipe.first.try_recv()) received(*message);
    while (auto message = ground_.pipe.second.try_recv()) received(*message);
  }

 private:
  static constexpr auto kPatience = 1ms;

  void operate() {
    try {
      switch (random_() % 12) {
        case 0:
        case 1:
          return send([&](const Message& message) { ground_.queue.put(message, kPatience); }, random_() % 300);
        case 2:
        case 3:
          return received(ground_.queue.get(kPatience));
        case 4:
          return send([&](const Message& message) { ground_.bounded.put(message, kPatience); }, random_() % 9000);
        case 5:
          return received(ground_.bounded.get(kPatience));
        case 6:
          return random_() % 2 ? send_loan() : received(ground_.loans.get(kPatience));
        case 7:
          return random_() % 2 ? send_queue() : receive_queue();
        case 8: {
          auto& end = random_() % 2 ? ground_.pipe.first : ground_.pipe.second;
          return send([&](const Message& message) { end.send(message, kPatience); }, random_() % 300);
        }
        case 9: {
          auto& end = random_() % 2 ? ground_.pipe.first : ground_.pipe.second;
          return received(end.recv(kPatience));
        }
        case 10:
          return use_lock();
        default:
          return random_() % 4 ? use_heap() : Session::current().reclaim_all();
      }
    } catch (const TimeoutError&) {
    } catch (const PeerDied&) {
    }
  }

  template <class Put>
  void send(Put&& put, std::size_t size) {
    std::uint32_t number = board_.next_message.fetch_add(1);
    if (number >= kMostMessages) return;
    board_.fate[number] |= kIntended;
    put(make_message(number, size));
    board_.fate[number] |= kPut;
  }

  void received(const Message& message) {
    if (message.number >= kMostMessages || !is_whole(message)) {
      ++board_.torn;
      return;
    }
    if (board_.fate[message.number].fetch_or(kReceived) & kReceived) ++board_.twice;
  }

  void send_loan() {
    SharedBytes loan(random_() % 200'000 + 1);
    send(
        [&](const Message& message) {
          std::fill_n(loan.data(), loan.size(), std::byte(message.text[0]));
          ground_.loans.put({message.number, loan}, kPatience);
        },
        1);
  }

  void received(const std::pair<std::uint32_t, SharedBytes>& loan) {
    Message message{loan.first, std::string(reinterpret_cast<const char*>(loan.second.data()), loan.second.size())};
    received(message);
  }

  /// A queue made here, with a message in it, that travels by itself.
  void send_queue() {
    Queue<Message> fresh(2);
    send(
        [&](const Message& message) {
          fresh.put(message);
          ground_.queues.put(fresh, kPatience);
        },
        random_() % 500);
  }

  void receive_queue() {
    Queue<Message> queue = ground_.queues.get(kPatience);
    if (auto message = queue.try_get()) received(*message);
  }

  void use_lock() {
    auto owner_died = ground_.lock.lock_until(Deadline::after(2s));
    if (!owner_died) return;
    // Only a dead owner may have left its name.
    const std::uint32_t me = Session::current().self().word();
    std::uint32_t before = board_.inside.exchange(me);
    if (before != 0 && !*owner_died) ++board_.wrong_owner;
    board_.counter.store(board_.counter.load() + 1);
    if (board_.inside.exchange(0) != me) ++board_.wrong_owner;
    ground_.lock.unlock();
  }

  void use_heap() {
    Hold hold = allocate_shared(random_() % 3 == 0 ? random_() % (5 << 20) : random_() % 5000);
    if (hold.size() != 0) hold.data()[hold.size() - 1] = std::byte(1);
    Hold second = hold.share();
    hold.release();
  }

  Playground& ground_;
  Board& board_;
  Board::Worker& self_;
  std::mt19937 random_;
  const std::vector<std::string>& labels_;
};

struct Totals {
  std::uint64_t kills = 0, by_label = 0, messages = 0, lost = 0, operations = 0, slowest = 0;
};

void play_round(unsigned seed, const std::vector<std::string>& labels, Totals& totals) {
  std::mt19937 random(seed);
  auto ground = std::make_unique<Playground>();
  Board& board = ground->board;
  std::unique_ptr<Forked> workers[kWorkers];
  auto start = [&](int index) {
    board.workers[index].kill_label = -1;
    unsigned worker_seed = random();
    workers[index].reset();
    workers[index] =
        std::make_unique<Forked>([&, index, worker_seed] { Worker(*ground, index, worker_seed, labels).run(); });
  };
  for (int i = 0; i < kWorkers; ++i) start(i);
  for (int kill = 0; kill < kKillsPerRound; ++kill) {
    const int victim = int(random() % kWorkers);
    const bool by_label = random() % 2;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));  // any moment
    if (by_label) {
      board.workers[victim].kill_label = int(random() % labels.size());
      // It dies there by itself, unless it does not come by: then at any moment.
      const std::uint64_t deadline = now() + 100'000'000;
      siginfo_t died{};
      while (now() < deadline && died.si_pid == 0)
        ::waitid(P_PID, id_t(workers[victim]->pid()), &died, WEXITED | WNOHANG | WNOWAIT);
      totals.by_label += died.si_pid != 0;
    }
    workers[victim]->kill();
    ++totals.kills;
    if (random() % 2) Session::current().reclaim_all();  // else a survivor does, or the next one
    start(victim);
  }
  board.stop = true;
  for (auto& worker : workers) CHECK(worker->join() == 0);
  Session::current().reclaim_all();
  Worker(*ground, 0, 0, labels).drain();
  std::uint64_t lost = 0;
  const std::uint32_t messages = std::min(board.next_message.load(), kMostMessages);
  for (std::uint32_t i = 0; i < messages; ++i) lost += (board.fate[i] & (kPut | kReceived)) == kPut;
  CHECK(board.torn == 0);
  CHECK(board.twice == 0);
  CHECK(board.wrong_owner == 0);
  CHECK(lost <= kKillsPerRound);  // each of the dead had one in hand at most
  totals.messages += messages;
  totals.lost += lost;
  for (auto& worker : board.workers) {
    totals.operations += worker.operations;
    totals.slowest = std::max<std::uint64_t>(totals.slowest, worker.slowest);
  }
}

}  // namespace

TEST_CASE("storm: whoever is killed wherever, no message is torn or comes twice, and no byte is lost") {
  const std::vector<std::string> labels = test::all_kill_points();
  REQUIRE(labels.size() > 20);
  const char* wanted = std::getenv("SHOAL_STORM_SEED");
  const unsigned seed = wanted ? unsigned(std::stoul(wanted)) : std::random_device()();
  CAPTURE(seed);
  const std::size_t before = heap_bytes_in_use();
  Totals totals;
  for (int round = 0; round < test::rounds(4) * test::test_scale(); ++round) {
    CAPTURE(round);
    play_round(seed + unsigned(round), labels, totals);
    Session::current().reclaim_all();
    REQUIRE(heap_bytes_in_use() == before);
  }
  fmt::print(
      "storm: seed {}: {} kills, {} of them at a marked point, {} operations, {} messages, {} lost with the "
      "dead, slowest operation {} ms\n",
      seed, totals.kills, totals.by_label, totals.operations, totals.messages, totals.lost, totals.slowest / 1'000'000);
}
