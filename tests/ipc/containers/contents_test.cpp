// Many processes, containers of all kinds, memory that runs out, delays, stops and deaths: each word of each value says
// which value it belongs to, so two that have one memory are seen, whoever writes to it.
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/arena.h>
#include <shoal/ipc/dict.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/list.h>
#include <shoal/ipc/namespace.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/shared_bytes.h>

#include <algorithm>
#include <boost/interprocess/containers/vector.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>

#include "tests/ipc/containers/sample.h"
#include "tests/ipc/process/session_fresh.h"
#include "tests/ipc/sync/fixtures.h"
#include "tests/support/sanitized.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

namespace {

constexpr int kWorkers = kSanitized ? 4 : 10;
constexpr int kKeys = 60;

/// A value of which there is one: its number is no other's.
struct Piece {
  std::uint64_t number = 0;
  std::string text;
  SharedBytes bytes;
};

/// What word `index` of the piece's memory is.
std::uint64_t word_of(std::uint64_t number, std::size_t index) {
  std::uint64_t word = (number + 1) * 0x9e3779b97f4a7c15ull + index * 0xd1342543de82ef95ull;
  return word ^ word >> 29;
}
std::string text_of(std::uint64_t number) {
  return std::to_string(number) + std::string(number % 5 == 0 ? 300 + number % 2000 : number % 90, 't');
}
std::size_t words_of(std::uint64_t number) {
  const std::uint64_t drawn = word_of(number, 1) >> 8;
  switch (drawn % 16) {
    case 0:
      return 40'000 + drawn % 200'000;  // up to 1.9 MB: runs of extents
    case 1:
    case 2:
      return 1'000 + drawn % 12'000;
    case 3:
    case 4:
    case 5:
      return 0;
    default:
      return 1 + drawn % 200;
  }
}

Piece make_piece(std::uint64_t number) {
  Piece piece{number, text_of(number), {}};
  if (const std::size_t words = words_of(number)) {
    piece.bytes = SharedBytes(words * 8);
    for (std::size_t i = 0; i < words; ++i) {
      const std::uint64_t word = word_of(number, i);
      std::memcpy(piece.bytes.data() + 8 * i, &word, 8);
    }
  }
  return piece;
}

/// Empty if it is what it was.
std::string damage_of(const Piece& piece) {
  if (piece.text != text_of(piece.number))
    return fmt::format("piece {}: text of {}", piece.number, piece.text.substr(0, 20));
  const std::size_t words = words_of(piece.number);
  if (piece.bytes.size() != words * 8) return fmt::format("piece {}: {} bytes", piece.number, piece.bytes.size());
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word;
    std::memcpy(&word, piece.bytes.data() + 8 * i, 8);
    if (word != word_of(piece.number, i))
      return fmt::format("piece {}: word {} of {} is {:016x}, not {:016x}", piece.number, i, words, word,
                         word_of(piece.number, i));
  }
  return {};
}

struct Numbers {
  explicit Numbers(const ArenaAllocator<std::byte>& allocator) : numbers(allocator) {}
  boost::interprocess::vector<std::uint64_t, ArenaAllocator<std::uint64_t>> numbers;
  std::uint64_t sum = 0;
};

struct Board {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> next{1};  // piece
  std::atomic<int> kill_label[kWorkers], delay_label[kWorkers];
  std::atomic<std::uint64_t> operations{0}, verified{0}, refused{0}, delays{0}, damaged{0};
  char report[200];  // the first damage
};

struct Ground {
  Dict<int, Piece> dict;
  List<Piece> list;
  Namespace names;
  Dict<int, Dict<int, Piece>> inner;  // dictionaries that come and go
  Dict<int, Piece> mortal;
  Arena<Numbers> arena;
  Hold place = allocate_shared(sizeof(Board));
  Board* board = new (place.data()) Board{};
};

void note_damage(Board& board, const std::string& what) {
  if (board.damaged++ == 0) what.copy(board.report, sizeof board.report - 1);
}

class Worker {
 public:
  Worker(Ground& ground, int seat, unsigned seed, const std::vector<std::string>& labels)
      : ground_(ground), board_(*ground.board), seat_(seat), random_(seed), labels_(labels) {}

  void run() {
    ::alarm(0);
    while (!board_.stop) {
      if (const int label = board_.kill_label[seat_].exchange(-1); label >= 0)
        kill_at(labels_[std::size_t(label)].c_str(), int(random_() % 6));
      if (const int label = board_.delay_label[seat_].exchange(-1); label >= 0)
        delay_at(labels_[std::size_t(label)].c_str(), {.mean = 80, .one_in = 4, .seed = unsigned(random_())});
      try {
        operate();
      } catch (const OutOfSharedMemory&) {
        ++board_.refused;
        let_go(kept_.size() / 2);
      } catch (const std::out_of_range&) {
      }
      ++board_.operations;
      board_.delays += kill_points::delays_made() - delays_;
      delays_ = kill_points::delays_made();
      if (kept_.size() > 30) let_go(kept_.size() - 30);
    }
    let_go(kept_.size());
  }

  /// Looks at all that the ground has.
  void look() {
    for (const auto& [key, piece] : ground_.dict.snapshot()) verify(piece);
    for (const auto& [key, dict] : ground_.inner.snapshot())
      for (const auto& [k, piece] : dict.snapshot()) verify(piece);
    for (const auto& [key, piece] : ground_.mortal.snapshot()) verify(piece);
    for (const Piece& piece : ground_.list.items()) verify(piece);
  }

 private:
  Piece fresh() { return make_piece(board_.next++); }
  void verify(const Piece& piece) {
    ++board_.verified;
    if (const std::string damage = damage_of(piece); !damage.empty()) note_damage(board_, damage);
  }
  /// Verifies, and keeps it for a while: containers let go of it meanwhile.
  void keep(std::optional<Piece> piece) {
    if (!piece) return;
    verify(*piece);
    kept_.push_back(std::move(*piece));
  }
  void let_go(std::size_t count) {
    for (; count > 0; --count) {
      verify(kept_.front());
      kept_.pop_front();
    }
  }
  /// One that it has, as often as a new one.
  Piece some() { return kept_.empty() || random_() % 2 ? fresh() : kept_[random_() % kept_.size()]; }

  void operate() {
    const int key = int(random_() % kKeys);
    switch (random_() % 20) {
      case 0:
      case 1:
      case 2:
      case 3:
        return ground_.dict.set(key, some());
      case 4:
      case 5:
        return keep(ground_.dict.try_get(key));
      case 6:
        return keep(ground_.dict.try_pop(key));
      case 7:
        return keep(ground_.dict.update(
            key,
            [&](const Piece& piece) {
              verify(piece);
              return some();
            },
            fresh()));
      case 8:
        return keep(ground_.dict.setdefault(key, some()));
      case 9:
        return random_() % 8 ? keep(ground_.dict.popitem().second) : look();
      case 10:
        if (random_() % 10 == 0) ground_.dict.clear();
        return;
      case 11:
        return ground_.list.append(some());
      case 12:
        return keep(ground_.list.pop(random_() % 2 ? -1 : 0));
      case 13:
        if (ground_.list.size() > 60) return ground_.list.erase(0, 30);
        if (random_() % 2) return ground_.list.replace(1, 3, {some(), some(), some()});
        return ground_.list.sort([](const Piece& a, const Piece& b) { return a.number < b.number; });
      case 14: {
        const std::string name = "name" + std::to_string(key % 5);
        if (random_() % 2) return ground_.names.set(name, some());
        return keep(ground_.names.try_get<Piece>(name));
      }
      case 15: {
        Dict<int, Piece> made;
        for (int i = int(random_() % 12); i > 0; --i) made.set(i, some());
        return ground_.inner.set(key % 6, made);
      }
      case 16: {
        auto dict = ground_.inner.try_get(key % 6);
        if (!dict) return;
        dict->set(key, some());
        return keep(dict->try_pop(int(random_() % 12)));
      }
      case 17:
        return ground_.mortal.set(key % 8, some(), {.dies_with_writer = true});
      case 18:
        return ground_.arena.change([&](Numbers& now) {
          if (now.numbers.size() > 400) {
            now.sum -= now.numbers.back();
            now.numbers.pop_back();
          }
          now.numbers.insert(now.numbers.begin(), std::uint64_t(key));
          now.sum += std::uint64_t(key);
        });
      default: {
        const auto now = ground_.arena.read();
        std::uint64_t sum = 0;
        for (const std::uint64_t number : now->numbers) sum += number;
        if (sum != now->sum) note_damage(board_, fmt::format("arena: {} and {}", sum, now->sum));
        if (random_() % 4 == 0) Session::current().reclaim_all();
      }
    }
  }

  Ground& ground_;
  Board& board_;
  int seat_;
  std::mt19937 random_;
  const std::vector<std::string>& labels_;
  std::deque<Piece> kept_;
  unsigned long delays_ = 0;  // counted on the board
};

/// What containers pass, one by one and by groups.
std::vector<std::string> labels_in_the_way() {
  std::vector<std::string> labels = container_kill_points();
  for (const std::string& label : all_kill_points())
    for (const char* room : {"block.", "heap.", "lock.", "event_word.", "reclaim.", "extents."})
      if (label.starts_with(room)) labels.push_back(label);
  for (const char* group : {"container.*", "dict.*", "list.*", "parcel.*", "lock.*", "block.*", "*"})
    labels.push_back(group);
  return labels;
}

void campaign(unsigned seed, bool with_deaths) {
  const std::vector<std::string> labels = labels_in_the_way();
  std::mt19937 random(seed);
  const std::size_t before = heap_bytes_in_use();
  int kills = 0, stops = 0;
  auto ground = std::make_unique<Ground>();
  Board& board = *ground->board;
  // Each has more holds than a header has words, so that who is forked needs no memory for its own.
  std::vector<Hold> places;
  std::vector<Encoder> handles(12);
  for (Encoder& handle : handles) {
    places.push_back(ground->place.share());
    encode(handle, ground->dict);
    encode(handle, ground->list);
    encode(handle, ground->names);
    encode(handle, ground->inner);
    encode(handle, ground->mortal);
    encode(handle, ground->arena);
  }
  std::unique_ptr<Forked> workers[kWorkers];
  const auto start = [&](int seat) {
    board.kill_label[seat] = board.delay_label[seat] = -1;
    const unsigned worker_seed = random();
    workers[seat].reset();
    workers[seat] = std::make_unique<Forked>([&, seat, worker_seed] {
      try {
        Worker(*ground, seat, worker_seed, labels).run();
      } catch (const std::exception& error) {
        note_damage(board, error.what());
      }
    });
  };
  for (int seat = 0; seat < kWorkers; ++seat) start(seat);
  const auto end = std::chrono::steady_clock::now() + rounds(6) * 1s * test_scale();
  while (std::chrono::steady_clock::now() < end && board.damaged == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));  // any moment
    const int seat = int(random() % kWorkers);
    const int drawn = int(random() % labels.size());
    switch (random() % (with_deaths ? 4 : 2)) {
      case 0:
        board.delay_label[seat] = drawn;
        break;
      case 1:
        workers[seat]->signal(SIGSTOP);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
        ++stops;
        if (!with_deaths || random() % 2) {
          workers[seat]->signal(SIGCONT);
          break;
        }
        [[fallthrough]];
      case 2:
        workers[seat]->kill();
        ++kills;
        if (random() % 2) Session::current().reclaim_all();
        start(seat);
        break;
      default: {
        board.kill_label[seat] = drawn;
        siginfo_t died{};
        ::waitid(P_PID, id_t(workers[seat]->pid()), &died, WEXITED | WNOHANG | WNOWAIT);
        if (died.si_pid == 0) break;
        ++kills;
        start(seat);
      }
    }
  }
  board.stop = true;
  for (auto& worker : workers) {
    const int result = worker->join();
    if (result != 0 && result != -SIGKILL) throw Error(fmt::format("a worker ended with {}", result));
    worker.reset();
  }
  Session::current().reclaim_all();
  if (!ground->mortal.empty()) throw Error("an entry outlived the process that it was to die with");
  Worker(*ground, 0, 0, labels).look();
  const std::uint64_t operations = board.operations, verified = board.verified, refused = board.refused,
                      delays = board.delays, damaged = board.damaged;
  const std::string report = board.report;
  handles.clear();
  places.clear();
  ground.reset();
  Session::current().reclaim_all();
  fresh::say(fmt::format("seed {}: {} operations, {} pieces verified, {} refused, {} delays, {} stops, {} kills", seed,
                         operations, verified, refused, delays, stops, kills));
  if (damaged != 0) throw Error(fmt::format("{} damaged; the first: {}", damaged, report));
  if (const std::size_t after = heap_bytes_in_use(); after != before)
    throw Error(fmt::format("{} bytes in use, {} at the beginning", after, before));
  if (refused == 0) throw Error("memory never ran out");
}

/// In a session of its own, with little memory.
void run_campaign(const char* deaths) {
  const std::string seed = std::to_string(test_seed());
  CAPTURE(seed);
  FreshProcess process("body: containers campaign", {{"SHOAL_CAMPAIGN", deaths},
                                                     {"SHOAL_CAMPAIGN_SEED", seed},
                                                     {"SHOAL_KEEP_IDLE", "4M"},
                                                     {"SHOAL_MEMORY_LIMIT", "80M"},
                                                     {"SHOAL_HEAP_BYTES", "1G"}});
  for (std::string line = process.read_line(); !line.empty(); line = process.read_line()) {
    fmt::print("containers: {}\n", line);
    UNSCOPED_INFO(line);
  }
  CHECK(process.join() == 0);
}

}  // namespace

TEST_CASE("body: containers campaign", "[.]") {
  fresh::run([] {
    ::alarm(0);  // it lasts as long as SHOAL_TEST_SCALE says; the watchdog is there
    campaign(unsigned(std::stoul(std::getenv("SHOAL_CAMPAIGN_SEED"))),
             std::string(std::getenv("SHOAL_CAMPAIGN")) == "deaths");
  });
}

TEST_CASE("containers: with little memory and late processes no value changes, and no two have one memory") {
  run_campaign("late");
}

TEST_CASE("containers: with little memory and deaths anywhere no value changes, and all memory comes back") {
  run_campaign("deaths");
}
