// The protocol of holds (ipc/heap/hold_protocol.h) under the model checker: never freed while held, freed exactly once,
// never leaked, also when a holder stops for ever at any step.
#include <shoal/internal/ipc/heap/hold_protocol.h>

#include <array>
#include <vector>

#include "tests/model/model.h"

using namespace shoal;
using namespace shoal::model;

namespace {

/// A block with few inline words, and blocks that are its chunks.
template <template <class> class Atomic>
struct ModelHeader {
  Atomic<std::uint64_t> state;
  Atomic<std::uint64_t> overflow;
  Atomic<std::uint32_t> holds[2];
};
template <template <class> class Atomic>
struct ModelChunk {
  Atomic<std::uint32_t> holds[2];
};
template <template <class> class Atomic>
struct ModelMemory {
  std::array<ModelHeader<Atomic>, 6>* headers;
  std::array<ModelChunk<Atomic>, 6>* chunks;
  ModelHeader<Atomic>& header(BlockOffset block) const { return (*headers)[block.value]; }
  static bool is_chunk(BlockOffset block) { return block.value != 1; }
  ModelChunk<Atomic>& chunk(BlockOffset block) const { return (*chunks)[block.value]; }
};

constexpr BlockOffset kBlock{1};  // the others are for chunks

/// What the models share: the block, how a holder works with it, and what reclaim does for a dead one.
template <template <class> class Atomic, class Model, int kThreads>
struct HoldModel : rl::test_suite<Model, kThreads> {
  std::array<ModelHeader<Atomic>, 6> headers;
  std::array<ModelChunk<Atomic>, 6> chunks;
  rl::var<int> payload;           // holders read it, who frees the block writes it: a race if any of both is wrong
  AsWritten<std::uint32_t> dead;  // tag of the one that stopped, as the kernel would tell
  int times_freed = 0;            // the model runs in one thread: seen by all, and no part of it

  ModelMemory<Atomic> memory{&headers, &chunks};
  HoldProtocol<ModelMemory<Atomic>> protocol{memory};

  static ProcessTag tag(unsigned index) { return ProcessTag(index + 1, 1); }

  void before() {
    death = {};
    payload($) = 1;
    headers[1].state.store(BlockHeader::with(0, BlockHeader::kLive));
  }
  void use() { RL_ASSERT(payload($) == 1); }
  HoldRef add(unsigned owner) {
    HoldRef added;
    if (!protocol.try_add_hold(kBlock, tag(owner).word(), added)) {
      protocol.add_chunk(kBlock, BlockOffset{owner + 2});
      RL_ASSERT(protocol.try_add_hold(kBlock, tag(owner).word(), added));
    }
    return added;
  }
  void drop(const HoldRef& hold, unsigned self) {
    if (protocol.drop_hold(hold, tag(self))) free_block();
  }
  /// Heap::finish_close: by the one process whose name is in the state.
  void free_block() {
    auto& state = headers[1].state;
    std::uint64_t seen = state.load();
    RL_ASSERT(BlockHeader::kind(seen) == BlockHeader::kClosing);
    payload($) = 0;
    state.store(BlockHeader::with(seen, BlockHeader::kFree));
    ++times_freed;
  }
  /// SessionCore::reclaim, as far as it concerns this block.
  void reclaim(unsigned self) {
    const ProcessTag victim = ProcessTag::from_word(dead.load(std::memory_order_acquire));
    if (!victim) return;
    auto& state = headers[1].state;
    std::uint64_t seen = state.load(std::memory_order_acquire);
    if (BlockHeader::kind(seen) == BlockHeader::kLive) {
      protocol.for_each_hold(kBlock, [&](std::uint32_t, Atomic<std::uint32_t>& hold) {
        std::uint32_t word = hold.load(std::memory_order_acquire);
        if (word != victim.word()) return true;
        state.fetch_add(BlockHeader::kOneChange, std::memory_order_acq_rel);
        hold.compare_exchange_strong(word, 0, std::memory_order_acq_rel);
        return true;
      });
      if (protocol.try_close(kBlock, tag(self))) free_block();
    } else if (BlockHeader::kind(seen) == BlockHeader::kClosing && BlockHeader::slot(seen) == victim.slot()) {
      if (state.compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kClosing, tag(self).slot())))
        free_block();
    }
  }
  void died(unsigned index) { dead.store(tag(index).word(), std::memory_order_release); }
};

/// Each thread has a hold, adds another, and drops both in one or the other order. kDies: thread 0, at any step.
template <template <class> class Atomic, int kThreads, bool kDies>
struct AddAndDrop : HoldModel<Atomic, AddAndDrop<Atomic, kThreads, kDies>, kThreads> {
  using Base = HoldModel<Atomic, AddAndDrop, kThreads>;

  void before() {
    Base::before();
    for (unsigned i = 0; i < kThreads; ++i) {
      // The first two inline, others in a chunk.
      if (i == 2) this->headers[1].overflow.store(5);
      (i < 2 ? this->headers[1].holds[i] : this->chunks[5].holds[i - 2]).store(Base::tag(i).word());
    }
    if (kDies) {
      unsigned step = rl::rand(40);
      death = {0, step};
    }
  }
  void thread(unsigned index) {
    try {
      const HoldRef first{kBlock, index};
      const HoldRef second = this->add(index);
      this->use();
      this->drop(index % 2 ? first : second, index);
      this->use();
      this->drop(index % 2 ? second : first, index);
    } catch (const Died&) {
      this->died(index);
    }
    if (kDies && index == 1) this->reclaim(index);
  }
  void after() {
    death = {};
    this->reclaim(9);
    RL_ASSERT(this->times_freed == 1);
    RL_ASSERT(BlockHeader::kind(this->headers[1].state.load()) == BlockHeader::kFree);
  }
};

/// Thread 0 has the only hold and gives a hold to each other thread, as a message in a ring would carry it; then it
/// drops its own. Once the block is free it is used again at once: a stale look at it must not close it.
template <template <class> class Atomic, bool kReused>
struct HandOver : HoldModel<Atomic, HandOver<Atomic, kReused>, 3> {
  using Base = HoldModel<Atomic, HandOver, 3>;
  std::array<AsWritten<std::uint32_t>, 3> mailbox;  // 1 + index of the hold word

  void before() {
    Base::before();
    this->headers[1].holds[0].store(Base::tag(0).word());
  }
  void thread(unsigned index) {
    if (index == 0) {
      for (unsigned to = 1; to < 3; ++to) {
        HoldRef added;
        while (!this->protocol.try_add_hold(kBlock, Base::tag(to).word(), added))
          this->protocol.add_chunk(kBlock, BlockOffset{to + 1});
        mailbox[to].store(1 + added.word, std::memory_order_release);
      }
      this->drop(HoldRef{kBlock, 0}, index);
      reuse();
      return;
    }
    std::uint32_t word = 0;
    while ((word = mailbox[index].load(std::memory_order_acquire)) == 0) rl::yield(1, $);
    this->use();
    this->drop(HoldRef{kBlock, word - 1}, index);
  }
  void after() {
    if (!kReused) {
      RL_ASSERT(this->times_freed == 1);
      return;
    }
    reuse();
    RL_ASSERT(reused_ && this->times_freed == 1);
    RL_ASSERT(BlockHeader::kind(this->headers[1].state.load()) == BlockHeader::kLive);
  }

 private:
  /// Heap::make_live: by the owner of the extent, which is thread 0, where it finds the block free.
  void reuse() {
    auto& state = this->headers[1].state;
    std::uint64_t seen = state.load(std::memory_order_acquire);
    if (!kReused || BlockHeader::kind(seen) != BlockHeader::kFree) return;
    this->payload($) = 1;
    this->headers[1].overflow.store(0, std::memory_order_relaxed);
    this->headers[1].holds[0].store(Base::tag(0).word(), std::memory_order_relaxed);
    state.store(BlockHeader::with(seen, BlockHeader::kLive), std::memory_order_release);
    reused_ = true;
  }
  bool reused_ = false;
};

/// Thread 0 has a hold in a chunk, drops it, and if that was the last one uses the chunk's memory for data. Thread 1
/// gives back a dead process, which may have a hold in the chunk, too; the data look like more of its holds. With
/// kTrusting it takes for holds whatever it finds.
template <template <class> class Atomic, bool kTrusting>
struct WalkWithoutHold : HoldModel<Atomic, WalkWithoutHold<Atomic, kTrusting>, 2> {
  using Base = HoldModel<Atomic, WalkWithoutHold, 2>;
  static constexpr unsigned kDead = 6;
  bool dead_holds = false, reused = false;  // the model runs in one thread

  void before() {
    Base::before();
    dead_holds = rl::rand(2) == 1;
    reused = false;
    this->headers[1].overflow.store(5);
    this->chunks[5].holds[0].store(Base::tag(0).word());
    this->chunks[5].holds[1].store(dead_holds ? Base::tag(kDead).word() : 0);
  }
  void thread(unsigned index) {
    if (index == 0) {
      if (rl::rand(2)) {
        // One more first, and away again: the state changes, and the block stays.
        const HoldRef more = this->add(0);
        this->drop(more, 0);
      }
      this->drop(HoldRef{kBlock, 2}, 0);
      if (this->times_freed == 0 || dead_holds) return;
      this->headers[1].overflow.store(0);
      for (auto& word : this->chunks[5].holds) word.store(Base::tag(kDead).word());
      reused = true;
      return;
    }
    std::vector<std::uint32_t> found;
    for (bool sure = false; !sure;) {
      if (BlockHeader::kind(this->headers[1].state.load(std::memory_order_acquire)) != BlockHeader::kLive) return;
      found.clear();
      sure = this->protocol.find_holds(
                 kBlock, [&](std::uint32_t word) { return word == Base::tag(kDead).word(); },
                 [&](std::uint32_t at, std::uint32_t) { found.push_back(at); }) ||
             kTrusting;
    }
    for (std::uint32_t at : found) {
      this->headers[1].state.fetch_add(BlockHeader::kOneChange, std::memory_order_acq_rel);
      this->chunks[5].holds[at - 2].store(0);
    }
    if (this->protocol.try_close(kBlock, Base::tag(1))) this->free_block();
  }
  void after() {
    RL_ASSERT(this->times_freed == 1);
    for (auto& word : this->chunks[5].holds) RL_ASSERT(!reused || word.load() == Base::tag(kDead).word());
  }
};

/// Thread 0 has the last hold, drops it, and where the block is free then uses it again, and its chunk's memory for
/// data. Thread 1 has none: it visits the block, which it has read of, adds a hold, uses the block and drops the hold.
/// With kDies it stops for ever at any step, and thread 0 reclaims. With kTrusting it adds without a visit, as one that
/// believes that somebody else's hold stays.
template <template <class> class Atomic, bool kTrusting, bool kDies>
struct VisitWithoutHold : HoldModel<Atomic, VisitWithoutHold<Atomic, kTrusting, kDies>, 2> {
  using Base = HoldModel<Atomic, VisitWithoutHold, 2>;
  using Visited = typename decltype(Base::protocol)::Visited;
  bool reused = false, in_chunk = false;  // the model runs in one thread

  void before() {
    Base::before();
    reused = false;
    in_chunk = rl::rand(2) == 1;
    if (in_chunk) {
      // The header's words are others', who are not to go on here; what is looked at is the chunk.
      this->headers[1].overflow.store(5);
      this->headers[1].holds[1].store(Base::tag(0).word());
      this->headers[1].holds[0].store(Base::tag(0).word());
    } else {
      this->headers[1].holds[1].store(Base::tag(0).word());
    }
    if (kDies) death = {1, rl::rand(30)};
  }
  void thread(unsigned index) {
    if (index == 0) {
      if (in_chunk) this->drop(HoldRef{kBlock, 0}, 0);
      this->drop(HoldRef{kBlock, 1}, 0);
      reuse();
      if (kDies) give_back();
      return;
    }
    try {
      visit();
    } catch (const Died&) {
      this->died(1);
    }
  }
  void visit() {
    HoldRef added;
    if (kTrusting) {
      if (BlockHeader::kind(this->headers[1].state.load()) != BlockHeader::kLive) return;
      if (!this->protocol.try_add_hold(kBlock, Base::tag(1).word(), added)) return;
      this->use();
      return this->drop(added, 1);
    }
    std::uint64_t seen = 0;
    if (this->protocol.try_visit(kBlock, Base::tag(1), seen) != Visited::kYes) return;
    this->use();
    const bool set = rl::rand(2) && this->protocol.try_set_word(kBlock, Base::tag(1).word(), added);
    this->use();
    this->protocol.end_visit(kBlock, Base::tag(1));
    if (!set) {
      if (this->protocol.try_close(kBlock, Base::tag(1))) this->free_block();
      return;
    }
    this->use();
    this->drop(added, 1);
  }
  /// What the block's and its chunk's memory is used for next.
  void reuse() {
    if (BlockHeader::kind(this->headers[1].state.load(std::memory_order_acquire)) != BlockHeader::kFree) return;
    for (auto& word : this->chunks[5].holds) RL_ASSERT(word.load() == 0);
    reused = true;
  }
  /// Session::reclaim: a visit of the dead one's is taken over, and ended.
  void give_back() {
    const ProcessTag victim = ProcessTag::from_word(this->dead.load(std::memory_order_acquire));
    if (!victim) return;
    std::uint64_t seen = this->headers[1].state.load();
    if (BlockHeader::kind(seen) == BlockHeader::kLive && BlockHeader::is_visited_by(seen, victim.slot())) {
      RL_ASSERT(this->protocol.take_over_visit(kBlock, Base::tag(9), seen));
      this->protocol.end_visit(kBlock, Base::tag(9));
    }
    this->reclaim(9);
  }
  void after() {
    death = {};
    if (kDies) give_back();
    RL_ASSERT(this->times_freed == 1);
    RL_ASSERT(BlockHeader::kind(this->headers[1].state.load()) == BlockHeader::kFree);
    for (auto& word : this->headers[1].holds) RL_ASSERT(word.load() == 0);
    for (auto& word : this->chunks[5].holds) RL_ASSERT(word.load() == 0);
  }
};

}  // namespace

TEST_CASE("model of holds: who visits a block without a hold keeps it live, or finds that it is not") {
  CHECK_RIGHT(at_random<VisitWithoutHold<AsWritten, false, false>>(80'000));
  CHECK_FINDS("times_freed == 1", at_random<VisitWithoutHold<NoSeqCst, false, false>>(200'000));
}

TEST_CASE("model of holds: a visitor that stops for ever at any step leaves nothing behind") {
  CHECK_RIGHT(at_random<VisitWithoutHold<AsWritten, false, true>>(80'000));
}

TEST_CASE("model of holds: who adds a hold where it has none, without a visit, uses a block that is freed") {
  CHECK_FINDS("VisitWithoutHold", at_random<VisitWithoutHold<AsWritten, true, false>>(200'000));
}

TEST_CASE("model of holds: who looks without a hold takes nothing for a hold that is other data by now") {
  CHECK_RIGHT(at_random<WalkWithoutHold<AsWritten, false>>(80'000));
  CHECK_FINDS("reused", at_random<WalkWithoutHold<AsWritten, true>>(200'000));
}

TEST_CASE("model of holds: a block is freed once, after its last hold, by every schedule") {
  CHECK_RIGHT(at_random<AddAndDrop<AsWritten, 2, false>>(40'000));
  CHECK_RIGHT(at_random<AddAndDrop<AsWritten, 3, false>>(40'000));
  CHECK_RIGHT(every_with<AddAndDrop<AsWritten, 2, false>>(3));
}

TEST_CASE("model of holds: handed over as by messages, also into chunks of hold words") {
  CHECK_RIGHT(at_random<HandOver<AsWritten, false>>(40'000));
}

TEST_CASE("model of holds: a late look at a block that was freed and used again does not close it") {
  CHECK_RIGHT(at_random<HandOver<AsWritten, true>>(80'000));
}

TEST_CASE("model of holds: a holder that stops for ever at any step leaves nothing behind") {
  CHECK_RIGHT(at_random<AddAndDrop<AsWritten, 2, true>>(80'000));
  CHECK_RIGHT(at_random<AddAndDrop<AsWritten, 3, true>>(80'000));
}

TEST_CASE("model of holds: with release and acquire instead of seq_cst, a block that nobody frees is found") {
  CHECK_FINDS("times_freed == 1", at_random<AddAndDrop<NoSeqCst, 2, false>>(100'000));
}

TEST_CASE("model of holds: without memory orders, a block freed under its holder's eyes is found") {
  CHECK_FINDS("DATA RACE", at_random<AddAndDrop<Relaxed, 2, false>>(100'000));
}
