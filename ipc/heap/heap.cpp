#include <shoal/ipc/heap.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/heap/block_cache.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/heap/block_visit.h>
#include <shoal/internal/ipc/heap/inherited_holds.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace shoal {
namespace {

/// In the first hold word of a linked chunk: it belongs to its parent block, not to a process.
constexpr std::uint32_t kHeldByParent = ProcessTag(ExtentRecord::kOrphan, 1).word();

/// A block that this thread has to close later, since it is deep in closing others. In no list but the thread's own: if
/// the process dies, its reclaimer finds the block by its state.
struct PutOff {
  BlockOffset block;
  PutOff* next;
};
/// Closings one in the other. What comes deeper is put off, which is more than users nest by hand.
constexpr int kDeepestClosing = 16;
constinit thread_local int closing_depth = 0;
constinit thread_local PutOff* put_off = nullptr;

}  // namespace

struct Heap::State {
  explicit State(std::byte* base) : cache(base) {}

  BlockCache cache;
  InheritedHolds inherited;
  State* parents = nullptr;  // in a forked child: what after_fork leaves alone
};

Heap::Heap(std::byte* base) : memory_(base), state_(std::make_unique<State>(base)) {
  BlockCache::idle_mark(0);  // a bad SHOAL_KEEP_IDLE is said here, not at some later free
}

Heap::~Heap() = default;

const Extents& Heap::extents() const noexcept { return state_->cache.extents(); }

void Heap::before_fork() noexcept { state_->inherited.before_fork(); }

void Heap::after_fork_in_parent() noexcept { state_->inherited.after_fork_in_parent(); }

void Heap::after_fork_in_child() noexcept {
  // The mutex may be held by a thread that does not exist here, and the caches are the parent's. The
  // old state is leaked, not destroyed: destroying it would free memory under that thread's feet.
  State* old = state_.release();
  state_ = std::make_unique<State>(memory_.base());
  state_->inherited.after_fork_in_child(old->inherited, fork_count());
  state_->parents = old;  // still referred to, so that leak checkers do not ask
}

HoldRef Heap::make_live(BlockOffset block, std::uint64_t payload, std::size_t bytes, BlockType type) {
  BlockHeader& header = memory_.header(block);
  // acquire: what the one who freed it still read of it lies before what is written now.
  std::uint64_t before = header.state.load(std::memory_order_acquire);
  header.size = bytes;
  header.payload = payload;
  header.type.store(type, std::memory_order_relaxed);                                  // relaxed: published by R1 below
  header.overflow.store(0, std::memory_order_relaxed);                                 // relaxed: published by R1 below
  header.holds[0].store(Session::current().self().word(), std::memory_order_relaxed);  // relaxed: by R1 too
  SHOAL_KILL_POINT("heap.make_live.before_state");
  // A small block that is free, and a large one that is kMaking, is the owner's alone, under its mutex: a store is
  // enough. R1: whoever sees the block live sees its first hold (A1 in is_hold() and heap_bytes_in_use()).
  header.state.store(BlockHeader::with(before, BlockHeader::kLive), std::memory_order_release);
  return HoldRef{block, 0, fork_count()};
}

HoldRef Heap::allocate(std::size_t bytes, BlockType type) {
  Session::current().self();  // takes a slot, which must not happen under the mutex
  BlockCache& cache = state_->cache;
  const SessionLayout& layout = extents().layout();
  // Before the size is rounded up, which could wrap around.
  if (bytes > std::min(layout.extent_count, ExtentState::kLongestRun) * kExtentBytes / 17 * 16)
    throw OutOfSharedMemory(bytes, layout.extents_committed.load() * kExtentBytes, layout.extent_count * kExtentBytes,
                            "the heap's address space (set SHOAL_HEAP_BYTES for more)");
  std::lock_guard lock(cache.mutex);
  FreeBlock found =
      SizeClass::is_small(bytes) ? cache.take_small(SizeClass::of(bytes)) : cache.take_large(SizeClass::run(bytes));
  return make_live(found.block, found.payload, bytes, type);
}

void Heap::trim() {
  Session::current().self();
  std::lock_guard lock(state_->cache.mutex);
  state_->cache.trim(0);
}

HoldRef Heap::add_hold(BlockOffset block, std::uint32_t word) {
  HoldRef added;
  while (!memory_.try_add_hold(block, word, added)) add_chunk(block);
  added.reserved = fork_count();
  return added;
}

HoldRef Heap::add_hold(const BlockVisit& visit, std::uint32_t word) {
  HoldRef added;
  while (!memory_.try_set_word(visit.block(), word, added)) add_chunk(visit.block());
  SHOAL_KILL_POINT("block.visit.word_set");
  added.reserved = fork_count();
  return added;
}

void Heap::add_chunk(BlockOffset block) {
  HoldRef chunk = allocate(sizeof(HoldChunk), BlockType::kHoldChunk);
  SHOAL_KILL_POINT("heap.chunk.made");
  auto* holds = new (memory_.payload(chunk.block)) HoldChunk{};
  holds->parent = block.value;
  memory_.add_chunk(block, chunk.block);
  SHOAL_KILL_POINT("heap.chunk.linked");
  memory_.header(chunk.block).holds[0].store(kHeldByParent);
}

void Heap::drop(const HoldRef& hold) noexcept {
  if (memory_.drop_hold(hold, Session::current().self())) finish_close(hold.block);
}

void Heap::finish_close(BlockOffset block) noexcept {
  // What lets go of the last hold on what lets go of the last hold: a chain of containers, each in the next one, may
  // have any length, and the stack of a thread has not.
  if (closing_depth >= kDeepestClosing)
    if (auto* later = new (std::nothrow) PutOff{block, put_off}) {
      put_off = later;
      return;
    }
  ++closing_depth;
  const auto close_and_free = [this](BlockOffset closing) {
    SHOAL_KILL_POINT("heap.close.start");
    BlockHeader& header = memory_.header(closing);
    if (auto* close = block_kind(header.type).close) close(*this, closing);
    // Chunks go one by one from the last, by steps that a reclaimer can go on with: held by this process, as one is
    // before it is linked (mark_linked_chunk in reclaim.cpp); unlinked; dropped like any block.
    while (std::uint64_t last = header.overflow.load()) {
      std::atomic<std::uint64_t>* link = &header.overflow;
      while (std::uint64_t next = memory_.header({last}).overflow.load()) {
        link = &memory_.header({last}).overflow;
        last = next;
      }
      memory_.header({last}).holds[0].store(Session::current().self().word());
      SHOAL_KILL_POINT("heap.chunk.taken");
      link->store(0);
      SHOAL_KILL_POINT("heap.chunk.unlinked");
      drop(HoldRef{BlockOffset{last}});
    }
    free_block(closing);
  };
  close_and_free(block);
  while (closing_depth == 1 && put_off) {
    const std::unique_ptr<PutOff> next(std::exchange(put_off, put_off->next));
    close_and_free(next->block);
  }
  --closing_depth;
}

void Heap::free_block(BlockOffset block) noexcept {
  BlockCache& cache = state_->cache;
  const Extents& extents = cache.extents();
  BlockHeader& header = memory_.header(block);
  const std::uint32_t slot = Session::current().self().slot();
  // With the name of who freed it: if this process dies before the owner is told, its reclaimer tells it.
  header.state.store(BlockHeader::with(header.state.load(), BlockHeader::kFree, slot));
  SHOAL_KILL_POINT("heap.free.before_hint");
  // Since the line above the owner may have used the block again, and given the extent away: all that follows is
  // checked against what the extent is now, and what goes into a list there is looked at again before it is used.
  const std::uint64_t extent = extents.extent_of(block);
  const std::uint32_t index = extents.index_in_extent(block);
  const ExtentState state = extents.state(extent);
  const bool small = state.use() == ExtentRecord::kSmall && index < extents.record(extent).used.load();
  const bool large = state.use() == ExtentRecord::kHead && index == 0;
  if (!small && !large) return;
  if (large) extents.note_idle(std::int64_t(state.run()));
  bool emptied = false;
  if (large && state.owner() == ExtentRecord::kOrphan) {
    // Its owner is dead: whoever frees the block frees the extents.
    extents.release_free_run(extent, ExtentPages::kKeep);
  } else if (state.owner() != slot || !cache.mutex.try_lock()) {
    if (large)
      extents.tell_owner(extent);
    else
      extents.set_hint(block);
  } else {
    std::lock_guard lock(cache.mutex, std::adopt_lock);
    // Another thread may have given the extent away before this one got the mutex: then there is nobody to tell.
    if (extents.state(extent).word == state.word) emptied = cache.put(block, state);
  }
  if (large || emptied) cache.trim_above_mark(large ? state.run() : 0);
}

void Heap::note_inherited(const HoldRef& own, std::size_t words) { state_->inherited.note(own, words); }

void Heap::drop_inherited(BlockOffset block) noexcept {
  if (const HoldRef own = state_->inherited.let_go(block); own.block) drop(own);
}

void Heap::reclaim_extents(ProcessTag dead) {
  const Extents& extents = this->extents();
  for (std::uint64_t i = 0, end = extents.touched(); i < end; ++i) extents.reclaim(i, dead);
  extents.recount();
}

void Heap::for_each_block(const std::function<void(BlockOffset, BlockHeader&)>& visit) const {
  const Extents& extents = this->extents();
  for (std::uint64_t i = 0, end = extents.touched(); i < end; ++i) {
    ExtentState state = extents.state(i);
    // Only what was ever handed out: looking at a header that nobody wrote to would take a page for it.
    std::uint32_t blocks = state.use() == ExtentRecord::kSmall  ? extents.record(i).used.load()
                           : state.use() == ExtentRecord::kHead ? 1
                                                                : 0;
    for (std::uint32_t block = 0; block < blocks; ++block) {
      BlockOffset offset = extents.header(i, block);
      visit(offset, memory_.header(offset));
    }
  }
}

bool Heap::is_inside(const std::byte* at, std::uint64_t bytes) const noexcept {
  const std::uint64_t offset = std::uint64_t(at - memory_.base()), end = extents().layout().bytes;
  return offset < end && bytes <= end - offset;
}

bool Heap::is_hold(const HoldRef& ref, std::uint32_t word) const noexcept {
  if (!extents().is_header(ref.block)) return false;
  // A1: pairs with R1 in make_live.
  if (BlockHeader::kind(memory_.header(ref.block).state.load(std::memory_order_acquire)) != BlockHeader::kLive)
    return false;
  auto* hold = memory_.hold_word(ref.block, ref.word);
  return hold && hold->load(std::memory_order_acquire) == word;  // A2: pairs with R2 in into_transit
}

Heap* SessionCore::make_heap(std::byte* base) { return new Heap(base); }

namespace {

/// Whether this thread's fork found a session: another thread may be making one.
constinit thread_local bool was_there = false;

[[gnu::init_priority(101)]] const AtFork at_fork({
    .stage = ForkStage::kHeap,
    .before =
        []() noexcept {
          was_there = Session::exists();
          if (was_there) Session::current().heap().before_fork();
        },
    .in_parent =
        []() noexcept {
          if (was_there) Session::current().heap().after_fork_in_parent();
        },
    // A heap that came meanwhile has no inherited handles, whose map alone is what the lock is for.
    .in_child =
        []() noexcept {
          if (Session::exists()) Session::current().heap().after_fork_in_child();
        },
});

}  // namespace

// ---------------------------------------------------------------- Hold

Hold::Hold(HoldRef ref) noexcept : ref_(ref) {}

std::byte* Hold::data() const noexcept { return Session::current().heap().memory().payload(ref_.block); }

std::size_t Hold::size() const noexcept { return Session::current().heap().memory().header(ref_.block).size; }

Hold Hold::share() const { return share_of(ref_.block); }

Hold Hold::share_of(BlockOffset block) {
  Session& session = Session::current();
  return Hold(session.heap().add_hold(block, session.self().word()));
}

HoldRef Hold::share_in_transit() const {
  Session& session = Session::current();
  return session.heap().add_hold(ref_.block, session.self().transit_word());
}

HoldRef Hold::into_transit() && {
  Session& session = Session::current();
  if (ref_.reserved != fork_count()) return Hold(std::move(*this)).share_in_transit();
  HoldRef ref = std::exchange(ref_, {});
  auto* word = session.heap().memory().hold_word(ref.block, ref.word);
  // Our own word: a store. R2: what was written to the block goes before it (A2 in is_hold).
  word->store(session.self().transit_word(), std::memory_order_release);
  return ref;
}

Hold Hold::from_transit(const HoldRef& ref) noexcept {
  Session& session = Session::current();
  auto* word = session.heap().memory().hold_word(ref.block, ref.word);
  word->store(session.self().word(), std::memory_order_release);  // R2, as in into_transit
  return Hold(HoldRef{ref.block, ref.word, fork_count()});
}

Hold Hold::adopt(const HoldRef& lent, ProcessTag lender) noexcept {
  Session& session = Session::current();
  Heap& heap = session.heap();
  if (!heap.extents().is_header(lent.block)) return {};
  // Against reclaim(lender), which may be clearing the word: one of the two gets it. A word of a later block does not
  // have this value: a dead lender does not lend again.
  const auto take = [&](std::atomic<std::uint32_t>* word) {
    std::uint32_t expected = lender.transit_word();
    // A2: pairs with R2 by which it was lent. R2: as in from_transit.
    return word && word->compare_exchange_strong(expected, session.self().word(), std::memory_order_acq_rel);
  };
  // A header's words are never anything else. But once the hold is given back, a chunk's may be any data: only a visit
  // makes sure that what is written to is a hold word.
  SHOAL_KILL_POINT("heap.adopt.begun");
  if (lent.word < BlockHeader::kInlineHolds) {
    if (!take(heap.memory().hold_word(lent.block, lent.word))) return {};
  } else {
    const BlockVisit visit(heap, lent.block);
    SHOAL_KILL_POINT("heap.adopt.visiting");
    if (!visit || !take(heap.memory().hold_word(lent.block, lent.word))) return {};
  }
  return Hold(HoldRef{lent.block, lent.word, fork_count()});
}

void Hold::release() noexcept {
  if (!ref_.block) return;
  HoldRef ref = std::exchange(ref_, {});
  Session& session = Session::current();
  // A copy of a handle from before a fork: its word is the parent's. Ours is another one, if any.
  if (ref.reserved == fork_count())
    session.heap().drop(ref);
  else if (InheritedHolds::counts(ref.reserved))
    session.heap().drop_inherited(ref.block);
}

Hold allocate_shared(std::size_t bytes, BlockType type) {
  return Hold(Session::current().heap().allocate(bytes, type));
}

std::size_t heap_bytes_in_use() {
  if (!Session::exists()) return 0;
  std::size_t bytes = 0;
  Session::current().heap().for_each_block([&](BlockOffset, BlockHeader& header) {
    auto kind = BlockHeader::kind(header.state.load(std::memory_order_acquire));  // A1: the size of a live block
    if (kind == BlockHeader::kLive || kind == BlockHeader::kClosing) bytes += header.size;
  });
  return bytes;
}

}  // namespace shoal
