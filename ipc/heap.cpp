#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/heap/budget.h>
#include <shoal/ipc/heap/extents.h>
#include <shoal/ipc/heap/size_class.h>
#include <shoal/ipc/kill_point.h>
#include <shoal/ipc/ring.h>
#include <shoal/ipc/session.h>
#include <string.h>

#include <array>
#include <bit>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace shoal {
namespace {

/// Idle large runs that a process keeps for its own reuse, and free extents that the session keeps with
/// their pages. What is above goes back to the system.
constexpr std::uint64_t kKeepIdleBytes = 512u << 20;

/// In the first hold word of a linked chunk: it belongs to its parent block, not to a process.
constexpr std::uint32_t kHeldByParent = ProcessTag(ExtentRecord::kOrphan, 1).word();

}  // namespace

/// Caches of this process. Blocks in `cache` are *probably* free: their state says whether they are.
struct Heap::State {
  struct Small {
    std::vector<BlockOffset> cache;      // freed by this process, last one first: still in its CPU's cache
    std::vector<std::uint64_t> extents;  // owned by this process
    std::size_t next_to_collect = 0;
    std::uint64_t fresh_extent = 0;
    std::uint32_t fresh_next = 0, fresh_end = 0;  // blocks of it that were never used
  };

  explicit State(std::byte* base) : extents(base) {}

  std::mutex mutex;
  std::array<Small, SizeClass::kSmallCount> small;
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> large;  // run length -> heads owned
  std::unordered_multimap<std::uint64_t, HoldRef> inherited;            // block -> own holds, after a fork
  Extents extents;
  State* parents = nullptr;  // in a forked child: what after_fork leaves alone
};

Heap::Heap(std::byte* base, int file) : memory_(base), state_(std::make_unique<State>(base)) {
  state_->extents.set_file(file);
}

Heap::~Heap() = default;

void Heap::after_fork() noexcept {
  // The mutex may be held by a thread that does not exist here, and the caches are the parent's. The
  // old state is leaked, not destroyed: destroying it would free memory under that thread's feet.
  State* old = state_.release();
  state_ = std::make_unique<State>(memory_.base());
  state_->extents = old->extents;
  state_->parents = old;  // still referred to, so that leak checkers do not ask
}

HoldRef Heap::make_live(BlockOffset block, std::uint64_t payload, std::size_t bytes, BlockType type) {
  BlockHeader& header = memory_.header(block);
  std::uint64_t before = header.state.load(std::memory_order_acquire);
  header.size = bytes;
  header.payload = payload;
  header.type.store(type, std::memory_order_relaxed);   // relaxed: published by R1 below
  header.overflow.store(0, std::memory_order_relaxed);  // relaxed: published by R1 below
  header.holds[0].store(Session::current().self().word(), std::memory_order_relaxed);
  SHOAL_KILL_POINT("heap.make_live.before_state");
  // R1: whoever sees the block live sees its first hold. Only the owner makes a free block live, under
  // its mutex, so a store is enough.
  header.state.store(BlockHeader::with(before, BlockHeader::kLive), std::memory_order_release);
  return HoldRef{block, 0, Session::current().fork_count()};
}

HoldRef Heap::allocate(std::size_t bytes, BlockType type) {
  Session::current().self();  // takes a slot, which must not happen under the mutex
  std::lock_guard lock(state_->mutex);
  if (SizeClass::is_small(bytes)) return allocate_small(SizeClass::of(bytes), bytes, type);
  return allocate_large(bytes, type);
}

HoldRef Heap::allocate_small(std::uint32_t size_class, std::size_t bytes, BlockType type) {
  State::Small& small = state_->small[size_class];
  Extents& extents = state_->extents;
  const std::uint64_t stride = SizeClass::stride(size_class);
  for (;;) {
    while (!small.cache.empty()) {
      BlockOffset block = small.cache.back();
      small.cache.pop_back();
      auto kind = BlockHeader::kind(memory_.header(block).state.load(std::memory_order_acquire));
      if (kind != BlockHeader::kFree && kind != BlockHeader::kUnused) continue;  // a stale hint
      std::uint64_t payload = extents.data(extents.extent_of(block)) + extents.index_in_extent(block) * stride;
      return make_live(block, payload, bytes, type);
    }
    refill(size_class);
  }
}

void Heap::refill(std::uint32_t size_class) {
  State::Small& small = state_->small[size_class];
  Extents& extents = state_->extents;
  // Case 1: blocks that other processes freed.
  for (std::size_t looked = 0; looked < small.extents.size(); ++looked) {
    if (small.next_to_collect >= small.extents.size()) small.next_to_collect = 0;
    if (collect_hints(std::uint32_t(small.extents[small.next_to_collect]), size_class)) return;
    ++small.next_to_collect;
  }
  // Case 2: blocks of the newest extent that were never used. A few at a time: each is a fresh page.
  constexpr std::uint32_t kFreshAtOnce = 8;
  if (small.fresh_next < small.fresh_end) {
    std::uint32_t end = std::min(small.fresh_end, small.fresh_next + kFreshAtOnce);
    for (std::uint32_t i = end; i > small.fresh_next; --i)
      small.cache.push_back(extents.header(small.fresh_extent, i - 1));
    small.fresh_next = end;
    return;
  }
  // Case 3: an extent that a dead process left behind.
  if (adopt_orphan(size_class)) return;
  // Case 4: a new extent.
  std::uint32_t owner = Session::current().self().slot();
  small.extents.reserve(small.extents.size() + 1);
  std::uint64_t extent = extents.claim(1, owner);
  SHOAL_KILL_POINT("heap.refill.claimed");
  for (std::uint64_t word = 0; word < kHeadersPerExtent / 64; ++word)
    if (extents.hints(extent)[word].load() != 0) extents.hints(extent)[word].store(0);
  extents.record(extent).state.store(ExtentState::make(ExtentRecord::kSmall, owner, size_class).word);
  small.extents.push_back(extent);
  small.fresh_extent = extent;
  small.fresh_next = 0;
  small.fresh_end = SizeClass::blocks(size_class);
}

bool Heap::collect_hints(std::uint32_t extent, std::uint32_t size_class) {
  Extents& extents = state_->extents;
  State::Small& small = state_->small[size_class];
  const std::uint32_t blocks = SizeClass::blocks(size_class);
  bool found = false;
  for (std::uint32_t group = 0; group * 4096 < blocks; ++group) {
    auto& summary = extents.record(extent).hint_summary[group];
    if (summary.load() == 0) continue;
    for (std::uint64_t words = summary.exchange(0); words != 0; words &= words - 1) {
      std::uint32_t word = group * 64 + std::uint32_t(std::countr_zero(words));
      for (std::uint64_t bits = extents.hints(extent)[word].exchange(0); bits != 0; bits &= bits - 1) {
        std::uint32_t index = word * 64 + std::uint32_t(std::countr_zero(bits));
        if (index >= blocks) break;  // a late hint from when the extent had smaller blocks
        small.cache.push_back(extents.header(extent, index));
        found = true;
      }
    }
  }
  return found;
}

bool Heap::adopt_orphan(std::uint32_t size_class) {
  Extents& extents = state_->extents;
  if (extents.layout().deaths.load() == 0) return false;  // only a death makes orphans
  State::Small& small = state_->small[size_class];
  ExtentState orphan = ExtentState::make(ExtentRecord::kSmall, ExtentRecord::kOrphan, size_class);
  ExtentState mine = ExtentState::make(ExtentRecord::kSmall, Session::current().self().slot(), size_class);
  for (std::uint64_t i = 0, end = extents.touched(); i < end; ++i) {
    std::uint64_t expected = orphan.word;
    if (extents.record(i).state.load() != orphan.word ||
        !extents.record(i).state.compare_exchange_strong(expected, mine.word))
      continue;
    small.extents.push_back(i);
    for (std::uint32_t block = SizeClass::blocks(size_class); block > 0; --block) {
      BlockOffset header = extents.header(i, block - 1);
      auto kind = BlockHeader::kind(memory_.header(header).state.load(std::memory_order_acquire));
      if (kind == BlockHeader::kFree || kind == BlockHeader::kUnused) small.cache.push_back(header);
    }
    if (!small.cache.empty()) return true;
  }
  return false;
}

HoldRef Heap::allocate_large(std::size_t bytes, BlockType type) {
  Extents& extents = state_->extents;
  const std::uint64_t run = SizeClass::run(bytes);
  std::vector<std::uint64_t>& heads = state_->large[run];
  for (std::size_t i = heads.size(); i-- > 0;) {
    BlockOffset block = extents.header(heads[i], 0);
    std::uint64_t seen = memory_.header(block).state.load(std::memory_order_acquire);
    if (BlockHeader::kind(seen) == BlockHeader::kUnused) {  // trimmed away, by this process or another
      heads[i] = heads.back();
      heads.pop_back();
    } else if (BlockHeader::kind(seen) == BlockHeader::kFree) {
      // By CAS, through kClosing: trim() of another process may want it just now.
      std::uint64_t closing = BlockHeader::with(seen, BlockHeader::kClosing, Session::current().self().slot());
      if (memory_.header(block).state.compare_exchange_strong(seen, closing, std::memory_order_acq_rel))
        return make_live(block, extents.data(heads[i]), bytes, type);
    }
  }
  heads.reserve(heads.size() + 1);
  std::uint64_t idle = 0;
  for (auto& [length, others] : state_->large)
    for (std::uint64_t head : others)
      if (BlockHeader::kind(memory_.header(extents.header(head, 0)).state.load()) == BlockHeader::kFree)
        idle += length * kExtentBytes;
  if (idle > kKeepIdleBytes) trim();
  std::uint32_t owner = Session::current().self().slot();
  std::uint64_t head;
  try {
    head = extents.claim(run, owner);
  } catch (const OutOfSharedMemory&) {
    trim();
    head = extents.claim(run, owner);
  }
  SHOAL_KILL_POINT("heap.large.claimed");
  extents.record(head).state.store(ExtentState::make(ExtentRecord::kHead, owner, 0, run).word);
  for (std::uint64_t distance = 1; distance < run; ++distance)
    extents.record(head + distance).state.store(ExtentState::make(ExtentRecord::kTail, owner, 0, distance).word);
  SHOAL_KILL_POINT("heap.large.marked");
  heads.push_back(head);
  return make_live(extents.header(head, 0), extents.data(head), bytes, type);
}

void Heap::trim() {
  Extents& extents = state_->extents;
  const std::uint32_t slot = Session::current().self().slot();
  for (std::uint64_t i = 0, end = extents.touched(); i < end; ++i) {
    ExtentState state{extents.record(i).state.load()};
    if (state.use() == ExtentRecord::kWarm) {
      // Claimed first: nobody may write to an extent while it is punched.
      ExtentState claimed = ExtentState::make(ExtentRecord::kClaimed, slot);
      if (extents.record(i).state.compare_exchange_strong(state.word, claimed.word))
        extents.release_one(i, claimed, true);
    } else if (state.use() == ExtentRecord::kHead) {
      auto& header = memory_.header(extents.header(i, 0));
      std::uint64_t seen = header.state.load();
      if (BlockHeader::kind(seen) == BlockHeader::kFree &&
          header.state.compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kUnused, slot)))
        extents.release_run(i, true);
    }
  }
}

HoldRef Heap::add_hold(BlockOffset block, std::uint32_t word) {
  HoldRef added;
  while (!memory_.try_add_hold(block, word, added)) {
    HoldRef chunk = allocate(sizeof(HoldChunk), BlockType::kHoldChunk);
    auto* holds = new (memory_.payload(chunk.block)) HoldChunk{};
    holds->parent = block.value;
    memory_.add_chunk(block, chunk.block);
    SHOAL_KILL_POINT("heap.chunk.linked");
    memory_.header(chunk.block).holds[0].store(kHeldByParent);
  }
  added.reserved = Session::current().fork_count();
  return added;
}

void Heap::drop(const HoldRef& hold) noexcept {
  if (memory_.drop_hold(hold, Session::current().self())) finish_close(hold.block);
}

void Heap::finish_close(BlockOffset block) noexcept {
  SHOAL_KILL_POINT("heap.close.start");
  BlockHeader& header = memory_.header(block);
  if (header.type == BlockType::kRing) Ring::drain(*this, block);
  // Chunks are freed before they are unlinked, so a repetition finds them; what it finds may be
  // somebody else's by then, which the checks tell.
  while (std::uint64_t next = header.overflow.load()) {
    BlockHeader& chunk = memory_.header({next});
    std::uint64_t after = chunk.overflow.load();
    bool ours = BlockHeader::kind(chunk.state.load()) == BlockHeader::kLive && chunk.type == BlockType::kHoldChunk &&
                chunk.holds[0].load() == kHeldByParent &&
                reinterpret_cast<HoldChunk*>(memory_.payload({next}))->parent == block.value;
    if (ours) {
      chunk.overflow.store(0);
      chunk.holds[0].store(0);
      if (memory_.try_close({next}, Session::current().self())) free_block({next});
    }
    header.overflow.store(ours ? after : 0);
  }
  free_block(block);
}

void Heap::free_block(BlockOffset block) noexcept {
  Extents& extents = state_->extents;
  BlockHeader& header = memory_.header(block);
  header.state.store(BlockHeader::with(header.state.load(), BlockHeader::kFree));
  SHOAL_KILL_POINT("heap.free.before_hint");
  std::uint64_t extent = extents.extent_of(block);
  ExtentState state{extents.record(extent).state.load()};
  const std::uint32_t slot = Session::current().self().slot();
  if (state.use() == ExtentRecord::kSmall) {
    // The index is checked because the extent may have changed hands, and class, since the line above.
    if (state.owner() == slot && extents.index_in_extent(block) < SizeClass::blocks(state.size_class()) &&
        state_->mutex.try_lock()) {
      std::lock_guard lock(state_->mutex, std::adopt_lock);
      try {
        state_->small[state.size_class()].cache.push_back(block);
        return;
      } catch (const std::bad_alloc&) {  // the hint below does as well
      }
    }
    extents.set_hint(block);
  } else if (state.use() == ExtentRecord::kHead && state.owner() == ExtentRecord::kOrphan) {
    // Its owner is dead: whoever frees the block frees the extents. The owner of a living one finds it.
    std::uint64_t seen = header.state.load();
    if (BlockHeader::kind(seen) == BlockHeader::kFree &&
        header.state.compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kUnused, slot)))
      extents.release_run(extent, extents.layout().extents_committed.load() * kExtentBytes > kKeepIdleBytes);
  }
}

void Heap::note_inherited(const HoldRef& own) {
  std::lock_guard lock(state_->mutex);
  state_->inherited.emplace(own.block.value, own);
}

bool Heap::drop_inherited(BlockOffset block) noexcept {
  HoldRef own;
  {
    std::lock_guard lock(state_->mutex);
    auto found = state_->inherited.find(block.value);
    if (found == state_->inherited.end()) return false;
    own = found->second;
    state_->inherited.erase(found);
  }
  drop(own);
  return true;
}

void Heap::reclaim_extents(ProcessTag dead) {
  Extents& extents = state_->extents;
  const std::uint32_t me = Session::current().self().slot();
  for (std::uint64_t i = 0, end = extents.touched(); i < end; ++i) {
    ExtentState state{extents.record(i).state.load()};
    if (state.use() == ExtentRecord::kHead) {
      auto& header = memory_.header(extents.header(i, 0));
      std::uint64_t seen = header.state.load();
      bool unused = BlockHeader::kind(seen) == BlockHeader::kUnused;
      if (unused && (BlockHeader::slot(seen) == dead.slot() || state.owner() == dead.slot())) {
        // Case 1: it died while it made the run, or while it gave one back.
        for (std::uint64_t k = 1; k < state.run(); ++k) {
          ExtentState claimed = ExtentState::make(ExtentRecord::kClaimed, dead.slot());
          extents.release_one(i + k, claimed, false);
        }
        extents.release_run(i, false);
      } else if (state.owner() == dead.slot()) {
        // Case 2: a block that others may hold, or a free one that the dead process kept for itself.
        extents.record(i).state.store(
            ExtentState::make(ExtentRecord::kHead, ExtentRecord::kOrphan, 0, state.run()).word);
        seen = header.state.load();
        if (BlockHeader::kind(seen) == BlockHeader::kFree &&
            header.state.compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kUnused, me)))
          extents.release_run(i, false);
      }
    } else if (state.owner() == dead.slot() && state.use() == ExtentRecord::kClaimed) {
      extents.release_one(i, state, false);
    } else if (state.owner() == dead.slot() && state.use() == ExtentRecord::kSmall) {
      bool in_use = false;
      for (std::uint32_t block = 0; block < SizeClass::blocks(state.size_class()) && !in_use; ++block) {
        auto kind = BlockHeader::kind(memory_.header(extents.header(i, block)).state.load());
        in_use = kind == BlockHeader::kLive || kind == BlockHeader::kClosing;
      }
      // Nobody else allocates in it, so free now is free for good.
      if (in_use)
        extents.record(i).state.store(
            ExtentState::make(ExtentRecord::kSmall, ExtentRecord::kOrphan, state.size_class()).word);
      else
        extents.release_one(i, state, false);
    }
  }
}

void Heap::for_each_block(const std::function<void(BlockOffset, BlockHeader&)>& visit) const {
  const Extents& extents = state_->extents;
  for (std::uint64_t i = 0, end = extents.touched(); i < end; ++i) {
    ExtentState state{extents.record(i).state.load()};
    std::uint32_t blocks = state.use() == ExtentRecord::kSmall  ? SizeClass::blocks(state.size_class())
                           : state.use() == ExtentRecord::kHead ? 1
                                                                : 0;
    for (std::uint32_t block = 0; block < blocks; ++block) {
      BlockOffset offset = extents.header(i, block);
      visit(offset, memory_.header(offset));
    }
  }
}

bool Heap::is_hold(const HoldRef& ref, std::uint32_t word) const noexcept {
  if (!state_->extents.is_header(ref.block)) return false;
  if (BlockHeader::kind(memory_.header(ref.block).state.load(std::memory_order_acquire)) != BlockHeader::kLive)
    return false;
  auto* hold = memory_.hold_word(ref.block, ref.word);
  return hold && hold->load(std::memory_order_acquire) == word;
}

// ---------------------------------------------------------------- Hold

Hold::Hold(HoldRef ref) noexcept : ref_(ref) {}

std::byte* Hold::data() const noexcept { return Session::current().heap().memory().payload(ref_.block); }

std::size_t Hold::size() const noexcept { return Session::current().heap().memory().header(ref_.block).size; }

Hold Hold::share() const {
  Session& session = Session::current();
  return Hold(session.heap().add_hold(ref_.block, session.self().word()));
}

HoldRef Hold::share_in_transit() const {
  Session& session = Session::current();
  return session.heap().add_hold(ref_.block, session.self().transit_word());
}

HoldRef Hold::into_transit() && {
  Session& session = Session::current();
  if (ref_.reserved != session.fork_count()) return Hold(std::move(*this)).share_in_transit();
  HoldRef ref = std::exchange(ref_, {});
  // Our own word: a store. release: what was written to the block goes before it.
  session.heap()
      .memory()
      .hold_word(ref.block, ref.word)
      ->store(session.self().transit_word(), std::memory_order_release);
  return ref;
}

Hold Hold::from_transit(const HoldRef& ref) noexcept {
  Session& session = Session::current();
  session.heap().memory().hold_word(ref.block, ref.word)->store(session.self().word(), std::memory_order_release);
  return Hold(HoldRef{ref.block, ref.word, session.fork_count()});
}

void Hold::release() noexcept {
  if (!ref_.block) return;
  HoldRef ref = std::exchange(ref_, {});
  Session& session = Session::current();
  // A copy of a handle from before a fork: its word is the parent's. Ours is another one, if any.
  if (ref.reserved != session.fork_count())
    session.heap().drop_inherited(ref.block);
  else
    session.heap().drop(ref);
}

Hold allocate_shared(std::size_t bytes, BlockType type) {
  return Hold(Session::current().heap().allocate(bytes, type));
}

std::size_t heap_bytes_in_use() {
  if (!Session::exists()) return 0;
  std::size_t bytes = 0;
  Session::current().heap().for_each_block([&](BlockOffset, BlockHeader& header) {
    auto kind = BlockHeader::kind(header.state.load(std::memory_order_acquire));
    if (kind == BlockHeader::kLive || kind == BlockHeader::kClosing) bytes += header.size;
  });
  return bytes;
}

}  // namespace shoal
