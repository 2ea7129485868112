// Who takes over a hold that it has only read of, a forked child or a borrower, while the block goes: it writes to
// nothing that is other data by then, and nobody gets or loses a hold by it.
#include <fcntl.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using namespace std::chrono_literals;
using shoal::test::Forked;
using shoal::test::stop_here;

namespace {

/// Blocks as large as a chunk of hold words, full of one word: what a chunk that was freed is used for next.
std::vector<Hold> take_chunks(std::uint32_t full_of) {
  std::vector<Hold> taken;
  for (int i = 0; i < 200; ++i) {
    taken.push_back(allocate_shared(sizeof(HoldChunk)));
    auto* words = reinterpret_cast<std::uint32_t*>(taken.back().data());
    std::fill_n(words, taken.back().size() / 4, full_of);
  }
  return taken;
}
std::ptrdiff_t changed(const std::vector<Hold>& taken, std::uint32_t full_of) {
  return std::ranges::count_if(taken, [&](const Hold& block) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(block.data());
    return !std::all_of(words, words + block.size() / 4, [&](std::uint32_t word) { return word == full_of; });
  });
}

/// A child that stops at a point while it adopts its parent's holds; `body` comes after that.
template <class Body>
pid_t fork_that_stops(const char* label, Body&& body) {
  SessionCore& session = SessionCore::current();
  session.self();
  const pid_t child = ::fork();
  if (child != 0) return child;
  int code = 0;
  try {
    ::alarm(60);
    session.self();
    stop_at(label);
    session.adopt_inherited_holds();
    body();
    session.leave();
  } catch (const std::exception&) {
    code = 3;
  }
  ::_exit(code);
}

void wait_until_stopped(pid_t process) {
  int status = 0;
  REQUIRE(::waitpid(process, &status, WUNTRACED) == process);
  REQUIRE(WIFSTOPPED(status));
}
int go_on(pid_t process) {
  int status = 0;
  ::kill(process, SIGCONT);
  REQUIRE(::waitpid(process, &status, 0) == process);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/// A hold in a chunk of hold words, lent by a process that is dead by now; nobody else holds the block. All its memory
/// is this process's.
struct LentByTheDead {
  LentByTheDead() {
    SessionCore::current().self();
    std::vector<Hold> holds;
    holds.push_back(allocate_shared(100));
    for (int i = 0; i < 10; ++i) holds.push_back(holds[0].share());
    int told[2];
    if (::pipe(told) != 0) throw Error("no pipe");
    const pid_t process = ::fork();
    if (process == 0) {
      // Nothing is adopted: the lent hold is the only one in this process's name.
      const HoldRef hold = holds[0].share_in_transit();
      const std::uint32_t self = SessionCore::current().self().word();
      (void)!::write(told[1], &hold, sizeof hold);
      (void)!::write(told[1], &self, sizeof self);
      ::_exit(0);
    }
    std::uint32_t word = 0;
    if (::read(told[0], &ref, sizeof ref) != sizeof ref || ::read(told[0], &word, sizeof word) != sizeof word ||
        ::waitpid(process, nullptr, 0) != process)
      throw Error("no lender");
    lender = ProcessTag::from_word(word);
    ::close(told[0]);
    ::close(told[1]);
  }

  HoldRef ref;
  ProcessTag lender;
};

}  // namespace

TEST_CASE("adopt windows: what a fork's parent gives up while its child takes it over is written to no more") {
  SessionCore::current().heap().trim();
  const char* label = GENERATE("reclaim.inherit.found", "block.visit.begun", "block.add.in_chunk",
                               "block.visit.word_set", "block.visit.ended");
  CAPTURE(label);
  const std::size_t before = heap_bytes_in_use();
  std::vector<Hold> holds;
  holds.push_back(allocate_shared(100));
  for (int i = 0; i < 10; ++i) holds.push_back(holds[0].share());  // seven in the header, the others in a chunk
  const pid_t child = fork_that_stops(label, [] {});
  wait_until_stopped(child);
  holds.clear();
  std::vector<Hold> taken = take_chunks(0);
  CHECK(go_on(child) == 0);
  CHECK(changed(taken, 0) == 0);
  taken.clear();
  SessionCore::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("adopt windows: a child that dies while it takes a block over, visiting it or not, keeps nothing") {
  const char* label = GENERATE("block.visit.begun", "block.visit.word_set", "block.visit.ended", "heap.chunk.linked");
  CAPTURE(label);
  const std::size_t before = heap_bytes_in_use();
  Hold block = allocate_shared(100);
  std::vector<Hold> more;
  for (int i = 0; i < 6; ++i) more.push_back(block.share());  // the child's own needs a chunk
  const pid_t child = fork_that_stops(label, [] {});
  wait_until_stopped(child);
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  SECTION("and its reclaimer comes before the block goes") { SessionCore::current().reclaim_all(); }
  SECTION("and the block goes before its reclaimer comes") {}
  SECTION("and another visitor comes before both") {
    Forked next([&] { Hold own = block.share(); });
    CHECK(next.join() == 0);
  }
  more.clear();
  block.release();
  SessionCore::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("adopt windows: a child whose parent dies before it has taken over its memory is told so") {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  int told[2];
  REQUIRE(::pipe2(told, O_CLOEXEC) == 0);
  Forked parent([&] {
    Hold block = allocate_shared(100);
    const pid_t child = fork_that_stops("reclaim.inherit.found", [] {});
    int status = 0;
    if (::waitpid(child, &status, WUNTRACED) != child) throw Error("no child");
    (void)!::write(told[1], &child, sizeof child);
    stop_here();
  });
  pid_t child = 0;
  REQUIRE(::read(told[0], &child, sizeof child) == sizeof child);
  parent.wait_until_stopped();
  parent.kill();
  SessionCore::current().reclaim_all();
  CHECK(go_on(child) == 3);
  SessionCore::current().reclaim_all();
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  ::close(told[0]);
  ::close(told[1]);
}

TEST_CASE("adopt windows: a lent hold in a chunk that goes while it is adopted is not looked for in other data") {
  SessionCore::current().heap().trim();
  const char* label = GENERATE("heap.adopt.begun", "heap.adopt.visiting");
  CAPTURE(label);
  const std::size_t before = heap_bytes_in_use();
  {
    const LentByTheDead lent;
    const pid_t borrower = ::fork();
    if (borrower == 0) {
      stop_at(label);
      Hold::adopt(lent.ref, lent.lender);
      ::_exit(0);
    }
    wait_until_stopped(borrower);
    SessionCore::current().reclaim_all();
    const std::uint32_t bait = lent.lender.transit_word();
    const std::vector<Hold> taken = take_chunks(bait);
    CHECK(go_on(borrower) == 0);
    CHECK(changed(taken, bait) == 0);
  }
  SessionCore::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("adopt windows: whoever recovers a dead reader's cell takes no hold that is another message's by now") {
  using Message = std::pair<std::string, Queue<int>>;
  const bool in_block = GENERATE(false, true);
  CAPTURE(in_block);
  const std::size_t before = heap_bytes_in_use();
  {
    Queue<Message> queue(1), other(4);
    const Message sent(std::string(in_block ? 500 : 5, '.'), Queue<int>(7));
    queue.put(sent);
    // A copy of the handles as after a plain fork(), never adopted: the dead one has no hold on the ring.
    const pid_t reader = ::fork();
    if (reader == 0) {
      kill_at("ring.get.read");
      (void)queue.get();
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(reader, &status, 0) == reader);
    REQUIRE(WIFSIGNALED(status));
    SessionCore& session = SessionCore::current();
    const ProcessTag dead = session.find(reader);
    CHECK_FALSE(session.reclaim(dead));
    other.put(sent);  // in the first hold words, and the first block, that are free
    queue.put(sent);  // the dead one's cell is in the way
    CHECK(other.get().second.capacity() == 7);
    CHECK(queue.get().second.capacity() == 7);
    CHECK(session.reclaim(dead));
  }
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("adopt windows: a ring whose last holder died while it emptied it takes no other message's hold with it") {
  const std::size_t before = heap_bytes_in_use();
  {
    Forked reclaimer([] {
      stop_here();
      stop_at("reclaim.hold");
      SessionCore::current().reclaim_all();
    });
    reclaimer.wait_until_stopped();
    // What is sent lies before the ring, where the walk over all blocks comes first.
    std::vector<Hold> candidates;
    std::vector<Ring> rings;
    const auto at = [](const Hold& block) { return block.block().value; };
    for (int i = 0; i < 20; ++i) {
      for (std::size_t size = 64; size < 200'000; size *= 2) candidates.push_back(allocate_shared(size));
      rings.push_back(Ring::create(4, 1));
    }
    Hold sent = std::move(*std::ranges::min_element(candidates, {}, at));
    Ring emptied = std::move(*std::ranges::max_element(rings, {}, [&](const Ring& ring) { return at(ring.hold()); }));
    REQUIRE(at(sent) < at(emptied.hold()));
    candidates.clear();
    rings.clear();
    Ring way = Ring::create(1, 2), other = Ring::create(1, 1);
    const auto put = [&](Ring& ring, const Hold& block) {
      Encoder message;
      message.add(block);
      REQUIRE(ring.put(message, Deadline::after(5s)) == RingStatus::kDone);
    };
    put(emptied, sent);
    put(way, emptied.hold());
    const pid_t emptier = ::fork();
    if (emptier == 0) {
      Received message;
      way.get(message, Deadline::after(5s));
      stop_here();
      kill_at("ring.discard.hold");
      {
        Received gone = std::move(message);
      }
      ::_exit(0);
    }
    wait_until_stopped(emptier);
    {
      const Ring gone = std::move(emptied);
    }
    CHECK(go_on(emptier) == -SIGKILL);
    reclaimer.signal(SIGCONT);
    reclaimer.wait_until_stopped();  // it has given up the dead one's hold on what was sent
    put(other, sent);
    reclaimer.signal(SIGCONT);
    CHECK(reclaimer.join() == 0);
    Received got;
    CHECK(other.get(got, Deadline::after(5s)) == RingStatus::kDone);
  }
  SessionCore::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}
