// The protocol of extents (ipc/heap/extent_protocol.h) under the model checker: no two live blocks in one memory, no
// page given back under a live block, no extent lost, also when a process stops for ever at any step, or its reclaimer
// does.
#include <shoal/internal/ipc/heap/extent_protocol.h>

#include <array>
#include <vector>

#include "tests/model/model.h"

using namespace shoal;
using namespace shoal::model;

namespace {

constexpr std::uint64_t kExtents = 3;

/// What is wrong on purpose with the memory that the protocol works on: a model that does not notice proves nothing.
enum class Fault {
  kNone,
  kHeadNotClosed,    // kHead is published while the header still says what it said in an earlier life
  kBlindOrphan,      // the reclaimer stores kHead of an orphan, whatever the word has become
  kTailsReadAnew,    // a run is taken apart without kCut, by reading its tails: goes on when its owner is dead
  kReleaserUnnamed,  // the header does not say who takes the run apart: the owner's reclaimer does it, too
};

template <template <class> class Atomic, Fault kFault>
struct ModelWord : Atomic<std::uint64_t> {
  bool compare_exchange_strong(std::uint64_t& expected, std::uint64_t value) {
    const ExtentState to{value};
    if (kFault == Fault::kBlindOrphan && to.is(ExtentRecord::kHead, ExtentRecord::kOrphan)) {
      this->store(value);
      return true;
    }
    return Atomic<std::uint64_t>::compare_exchange_strong(expected, value);
  }
};

template <template <class> class Atomic, Fault kFault>
struct ModelState : Atomic<std::uint64_t> {
  void store(std::uint64_t value) {
    if (kFault == Fault::kHeadNotClosed && BlockHeader::kind(value) == BlockHeader::kMaking) return;
    Atomic<std::uint64_t>::store(value);
  }
  bool compare_exchange_strong(std::uint64_t& expected, std::uint64_t value,
                               std::memory_order order = std::memory_order_seq_cst) {
    if (kFault == Fault::kReleaserUnnamed && BlockHeader::kind(value) == BlockHeader::kReleasing)
      value = BlockHeader::with(expected, BlockHeader::kReleasing, 7);
    return Atomic<std::uint64_t>::compare_exchange_strong(expected, value, order);
  }
};

template <template <class> class Atomic, Fault kFault>
struct ModelMemory {
  struct Shared {
    std::array<ModelWord<Atomic, kFault>, kExtents> words;
    std::array<ModelState<Atomic, kFault>, kExtents> states;  // of each extent's first block
    std::array<rl::var<int>, kExtents> bytes;                 // written by who has the memory: a race if two have it
  };
  Shared* shared;

  ModelWord<Atomic, kFault>& extent(std::uint64_t index) const { return shared->words[index]; }
  ModelState<Atomic, kFault>& head_state(std::uint64_t index) const { return shared->states[index]; }
  bool is_pinned(std::uint64_t) const { return false; }
  bool give_back(std::uint64_t index) const {
    shared->bytes[index]($) = 0;
    return true;
  }
  void went_cold() const {}
};

/// What the models share: how a process allocates, fills, checks and frees large blocks and small ones, trims, and
/// gives back what a dead one had, as Heap, BlockCache and SessionCore::reclaim do.
template <template <class> class Atomic, Fault kFault, class Model, int kThreads>
struct ExtentModel : rl::test_suite<Model, kThreads> {
  using Memory = ModelMemory<Atomic, kFault>;
  using Protocol = ExtentProtocol<Memory>;
  using Pages = typename Protocol::Pages;
  static constexpr std::uint32_t kClass = 3;

  typename Memory::Shared shared;
  Memory memory{&shared};
  std::array<Atomic<std::uint32_t>, kExtents> holders;   // slot of who holds the block that begins there, 0 for nobody
  std::array<AsWritten<std::uint32_t>, kThreads> dead;   // by thread: whether it stopped
  std::array<AsWritten<std::uint64_t>, kThreads> inbox;  // 1 + head of a block that another one has to free
  int blocks = 0;  // the model runs in one thread: a number for each block's bytes

  static std::uint32_t slot(unsigned index) { return index + 1; }
  Protocol protocol(std::uint32_t me) const { return Protocol(memory, me); }
  BlockHeader::Kind kind(std::uint64_t head) { return BlockHeader::kind(shared.states[head].load()); }

  /// BlockCache::take_large and Heap::make_live. Nothing where no such run is free.
  bool allocate(std::uint32_t me, std::uint64_t head, std::uint64_t run) {
    if (!protocol(me).reuse_large(head, run)) {
      const auto claimed = protocol(me).claim(head, run, true);
      if (claimed.got < run) {
        for (std::uint64_t k = 0; k < claimed.got; ++k) protocol(me).unclaim(head + k, Pages::kKeep);
        return false;
      }
      RL_ASSERT(protocol(me).make_large(head, run));
    }
    make_live(me, head);
    return true;
  }
  void make_live(std::uint32_t me, std::uint64_t head) {
    auto& state = shared.states[head];
    holders[head].store(me, std::memory_order_relaxed);
    static_cast<Atomic<std::uint64_t>&>(state).store(BlockHeader::with(state.load(), BlockHeader::kLive),
                                                     std::memory_order_release);
  }
  int fill(std::uint64_t head, std::uint64_t run) {
    const int number = ++blocks;
    for (std::uint64_t k = 0; k < run; ++k) shared.bytes[head + k]($) = number;
    return number;
  }
  void check(std::uint64_t head, std::uint64_t run, int number) {
    for (std::uint64_t k = 0; k < run; ++k) RL_ASSERT(shared.bytes[head + k]($) == number);
  }
  /// Heap::drop by the only holder, and Heap::free_block.
  void drop(std::uint32_t me, std::uint64_t head) {
    auto& state = shared.states[head];
    holders[head].store(0);
    std::uint64_t seen = state.load();
    if (BlockHeader::kind(seen) == BlockHeader::kLive &&
        state.compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kClosing, me)))
      free_block(me, head);
  }
  void free_block(std::uint32_t me, std::uint64_t head) {
    auto& state = shared.states[head];
    static_cast<Atomic<std::uint64_t>&>(state).store(BlockHeader::with(state.load(), BlockHeader::kFree, me));
    const ExtentState seen = protocol(me).state(head);
    if (seen.is(ExtentRecord::kHead, ExtentRecord::kOrphan)) release(me, head, Pages::kKeep);
  }

  /// Extents::release_free_run; with the planted fault, as it was once.
  void release(std::uint32_t me, std::uint64_t head, Pages pages) {
    if (kFault != Fault::kTailsReadAnew) {
      protocol(me).release_large(head, pages);
      return;
    }
    std::uint64_t seen = shared.states[head].load();
    if (BlockHeader::kind(seen) != BlockHeader::kFree || protocol(me).state(head).use() != ExtentRecord::kHead) return;
    if (!shared.states[head].compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kReleasing, me)))
      return;
    release_as_once(me, head, pages);
  }
  void release_as_once(std::uint32_t me, std::uint64_t head, Pages pages) {
    const ExtentState first = protocol(me).state(head);
    if (first.use() != ExtentRecord::kHead) return;
    for (std::uint64_t distance = first.run(); distance-- > 0;) {
      const ExtentState part = distance == 0 ? first : protocol(me).state(head + distance);
      if (distance != 0 && (part.use() != ExtentRecord::kTail || part.run() != distance)) continue;
      if (pages == Pages::kGiveBack) memory.give_back(head + distance);
      std::uint64_t expected = part.word;
      shared.words[head + distance].compare_exchange_strong(
          expected, part.next(pages == Pages::kGiveBack ? ExtentRecord::kCold : ExtentRecord::kWarm).word);
    }
  }

  /// Extents::punch_idle.
  void trim(std::uint32_t me) {
    for (std::uint64_t i = kExtents; i-- > 0;) {
      const ExtentState seen = protocol(me).state(i);
      if (seen.use() == ExtentRecord::kWarm) {
        if (protocol(me).claim(i, 1, false).got == 1) protocol(me).unclaim(i, Pages::kGiveBack);
      } else if (seen.use() == ExtentRecord::kHead) {
        release(me, i, Pages::kGiveBack);
      } else if (seen.is(ExtentRecord::kSmall, ExtentRecord::kOrphan) && protocol(me).adopt_small(i, seen)) {
        give_up_small(me, i);
      }
    }
  }
  /// BlockCache::release_if_empty, for a block that was adopted.
  void give_up_small(std::uint32_t me, std::uint64_t extent) {
    if (has_block_in_use(extent))
      protocol(me).orphan_small(extent);
    else
      protocol(me).release_small(extent, kClass);
  }
  bool has_block_in_use(std::uint64_t extent) {
    const auto kind = this->kind(extent);
    return kind == BlockHeader::kLive || kind == BlockHeader::kClosing;
  }

  /// A small block, the only one of its extent: allocated, used, freed, and the extent given up.
  void use_small(std::uint32_t me, std::uint64_t extent) {
    if (protocol(me).claim(extent, 1, true).got == 0) return;
    RL_ASSERT(protocol(me).make_small(extent, kClass));
    make_live(me, extent);
    const int number = fill(extent, 1);
    check(extent, 1, number);
    drop(me, extent);
    protocol(me).release_small(extent, kClass);
  }

  /// SessionCore::reclaim: blocks first, then extents.
  void reclaim(std::uint32_t me, std::uint32_t victim) {
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      const auto use = protocol(me).state(i).use();
      if (use != ExtentRecord::kHead && use != ExtentRecord::kSmall) continue;
      auto& state = shared.states[i];
      std::uint64_t seen = state.load();
      if (BlockHeader::kind(seen) == BlockHeader::kLive) {
        std::uint32_t holder = victim;
        if (holders[i].compare_exchange_strong(holder, 0) || holder == 0)
          if (state.compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kClosing, me)))
            free_block(me, i);
      } else if (BlockHeader::kind(seen) == BlockHeader::kClosing && BlockHeader::slot(seen) == victim) {
        if (state.compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kClosing, me))) free_block(me, i);
      }
    }
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      if (kFault == Fault::kTailsReadAnew || kFault == Fault::kReleaserUnnamed) {
        const ExtentState seen = protocol(me).state(i);
        const std::uint64_t state = shared.states[i].load();
        if (seen.is(ExtentRecord::kHead, victim) && BlockHeader::kind(state) == BlockHeader::kReleasing) {
          release_as_once(me, i, Pages::kKeep);
          continue;
        }
      }
      protocol(me).reclaim(i, victim, [&](ExtentState) { return has_block_in_use(i); });
    }
  }

  /// Nothing is left that nobody can get at: what is free, or can be made so, is all there is.
  void after() {
    death = {};
    const std::uint32_t last = slot(kThreads) + 1;
    for (unsigned i = 0; i < kThreads; ++i)
      if (dead[i].load()) reclaim(last, slot(i));
    for (std::uint64_t i = 0; i < kExtents; ++i) {
      const auto use = protocol(last).state(i).use();
      RL_ASSERT(use != ExtentRecord::kClaimed);
      RL_ASSERT(use != ExtentRecord::kCut);
    }
    trim(last);  // what orphans of small blocks had becomes warm
    trim(last);  // and cold
    for (std::uint64_t i = 0; i < kExtents; ++i) RL_ASSERT(protocol(last).state(i).use() == ExtentRecord::kCold);
  }
};

/// Processes that allocate, hand over, free and trim as they like. kDies: thread 0, at any step; thread 1 reclaims it.
template <template <class> class Atomic, Fault kFault, int kThreads, bool kDies>
struct Everything : ExtentModel<Atomic, kFault, Everything<Atomic, kFault, kThreads, kDies>, kThreads> {
  using Base = ExtentModel<Atomic, kFault, Everything, kThreads>;
  using Base::slot;

  void before() {
    death = {};
    // Extents with a past: headers that were left free, or released, by one of these processes.
    for (auto& state : this->shared.states) {
      const auto kind = rl::rand(2) ? BlockHeader::kFree : BlockHeader::kReleasing;
      static_cast<Atomic<std::uint64_t>&>(state).store(BlockHeader::with(0, kind, slot(rl::rand(kThreads))));
    }
    if (kDies) {
      const unsigned step = rl::rand(60);
      death = {0, step};
    }
  }
  void thread(unsigned index) {
    try {
      for (int step = 0; step < 3; ++step) operate(index);
    } catch (const Died&) {
      this->dead[index].store(1);
    }
    if (kDies && index == 1 && this->dead[0].load()) this->reclaim(slot(1), slot(0));
  }
  void after() {
    death = {};
    for (unsigned i = 0; i < kThreads; ++i) {
      if (this->dead[i].load()) continue;
      take_from_inbox(i);
      // One whose giver died before it said so.
      for (std::uint64_t head = 0; head < kExtents; ++head)
        if (this->kind(head) == BlockHeader::kLive && this->holders[head].load() == slot(i)) this->drop(slot(i), head);
    }
    Base::after();
  }

 private:
  void operate(unsigned index) {
    const std::uint32_t me = slot(index);
    switch (rl::rand(5)) {
      case 0:
      case 1:
        return use_large(index);
      case 2:
        return this->trim(me);
      case 3:
        return this->use_small(me, rl::rand(kExtents));
      default:
        return take_from_inbox(index);
    }
  }
  void use_large(unsigned index) {
    const std::uint64_t run = 1 + rl::rand(2), head = rl::rand(unsigned(kExtents - run + 1));
    if (!this->allocate(slot(index), head, run)) return;
    const int number = this->fill(head, run);
    this->check(head, run, number);
    const unsigned other = (index + 1) % kThreads;
    if (rl::rand(2) || this->inbox[other].load() != 0) return this->drop(slot(index), head);
    this->holders[head].store(slot(other));
    this->inbox[other].store(1 + head + run * 8 + std::uint64_t(number) * 64);
  }
  void take_from_inbox(unsigned index) {
    const std::uint64_t got = this->inbox[index].load();
    if (got == 0) return;
    this->inbox[index].store(0);
    const std::uint64_t head = (got & 7) - 1, run = got >> 3 & 7;
    this->check(head, run, int(got >> 6));
    this->drop(slot(index), head);
  }
};

/// What a process of slot 8 left half done when it died: thread 0 gives it back and dies at any step, then thread 1
/// goes on with it, as SessionCore::reclaim does, and gives back thread 0. Thread 2 allocates and trims meanwhile.
template <template <class> class Atomic, Fault kFault>
struct ReclaimerDies : ExtentModel<Atomic, kFault, ReclaimerDies<Atomic, kFault>, 3> {
  using Base = ExtentModel<Atomic, kFault, ReclaimerDies, 3>;
  using Base::slot;
  static constexpr std::uint32_t kVictim = 8;

  void before() {
    const unsigned past = rl::rand(6), step = rl::rand(30);
    death = {};
    const auto protocol = this->protocol(kVictim);
    auto& state = static_cast<Atomic<std::uint64_t>&>(this->shared.states[0]);
    protocol.claim(0, past == 0 ? 3 : 2, true);
    if (past == 1) RL_ASSERT(protocol.make_small(0, Base::kClass) && protocol.make_small(1, Base::kClass));
    if (past >= 2) RL_ASSERT(protocol.make_large(0, 2));
    if (past == 1 || past == 3) this->make_live(kVictim, 0);
    if (past == 4) state.store(BlockHeader::with(state.load(), BlockHeader::kFree, kVictim));
    if (past == 5) state.store(BlockHeader::with(state.load(), BlockHeader::kReleasing, kVictim));
    death = {0, step};
  }
  void thread(unsigned index) {
    const std::uint32_t me = slot(index);
    try {
      if (index == 0) this->reclaim(me, kVictim);
    } catch (const Died&) {
      this->dead[0].store(1);
    }
    if (index == 1 && this->dead[0].load()) {
      this->reclaim(me, kVictim);
      this->reclaim(me, slot(0));
    }
    if (index != 2) return;
    this->trim(me);
    for (std::uint64_t head = 0; head < 2; ++head)
      if (this->allocate(me, head, 2)) {
        const int number = this->fill(head, 2);
        this->check(head, 2, number);
        this->drop(me, head);
      }
  }
  void after() {
    death = {};
    this->reclaim(slot(5), kVictim);
    Base::after();
  }
};

}  // namespace

TEST_CASE("model of extents: memory is one block's at a time, and none is lost, whoever allocates, frees and trims") {
  CHECK_RIGHT(at_random<Everything<AsWritten, Fault::kNone, 2, false>>(40'000));
  CHECK_RIGHT(at_random<Everything<AsWritten, Fault::kNone, 3, false>>(40'000));
}

TEST_CASE("model of extents: a process that stops for ever at any step leaves nothing behind") {
  CHECK_RIGHT(at_random<Everything<AsWritten, Fault::kNone, 2, true>>(40'000));
  CHECK_RIGHT(at_random<Everything<AsWritten, Fault::kNone, 3, true>>(80'000));
}

TEST_CASE("model of extents: what a dead process left is given back once, also where its reclaimer dies") {
  CHECK_RIGHT(at_random<ReclaimerDies<AsWritten, Fault::kNone>>(80'000));
}

TEST_CASE("model of extents: a head that is published with the header of an earlier life is found") {
  CHECK_FINDS("", at_random<Everything<AsWritten, Fault::kHeadNotClosed, 3, false>>(200'000));
  CHECK_FINDS("", at_random<Everything<AsWritten, Fault::kHeadNotClosed, 3, true>>(200'000));
}

TEST_CASE("model of extents: an orphan that is stored blindly is found") {
  CHECK_FINDS("", at_random<Everything<AsWritten, Fault::kBlindOrphan, 3, true>>(500'000));
}

TEST_CASE("model of extents: a trim that outlives the owner of its run is found") {
  CHECK_FINDS("", at_random<Everything<AsWritten, Fault::kTailsReadAnew, 3, true>>(500'000));
}

TEST_CASE("model of extents: a run that two processes take apart is found") {
  CHECK_FINDS("", at_random<Everything<AsWritten, Fault::kReleaserUnnamed, 3, true>>(500'000));
}

TEST_CASE("model of extents: without memory orders, a block that is written before it is somebody's is found") {
  CHECK_FINDS("DATA RACE", at_random<Everything<Relaxed, Fault::kNone, 2, false>>(200'000));
}
