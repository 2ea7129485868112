// The session's extents: which are free, and who owns the others.
#pragma once

#include <shoal/ipc/heap/block.h>
#include <shoal/ipc/session/layout.h>

#include <cstdint>
#include <optional>

namespace shoal {

/// `state` of an ExtentRecord, taken apart.
struct ExtentState {
  std::uint64_t word = 0;

  static ExtentState make(ExtentRecord::Use use, std::uint32_t owner = 0, std::uint32_t size_class = 0,
                          std::uint64_t run = 0) {
    return {std::uint64_t(use) | std::uint64_t(owner) << 4 | std::uint64_t(size_class) << 16 | run << 24};
  }
  ExtentRecord::Use use() const { return ExtentRecord::Use(word & 15); }
  std::uint32_t owner() const { return word >> 4 & 4095; }
  std::uint32_t size_class() const { return word >> 16 & 255; }
  std::uint64_t run() const { return word >> 24; }  // kHead: extents in all; kTail: distance from the head
};

/// What one look through the extent table saw.
struct ExtentCount {
  std::uint64_t committed = 0;     // extents that may have pages
  std::uint64_t idle = 0;          // of these: free, or of a large block that is free
  std::uint64_t idle_pinned = 0;   // of these: registered with a device's driver, so they keep their pages
  std::uint64_t header_bytes = 0;  // of the blocks of those that hold small ones
};

/// This process's view of the extent table. Free extents are claimed and given back by CAS, one by
/// one; a process that dies with some claimed has them given back by reclaim. Owned by the Heap;
/// threads: any. All atomics here are seq_cst: none of it is on the fast path.
class Extents {
 public:
  Extents(std::byte* base, int file) : base_(base), file_(file) {}

  SessionLayout& layout() const { return *reinterpret_cast<SessionLayout*>(base_); }
  ProcessRecord& process(std::uint32_t slot) const {
    return reinterpret_cast<ProcessRecord*>(base_ + layout().processes)[slot];
  }
  ExtentRecord& record(std::uint64_t index) const {
    return reinterpret_cast<ExtentRecord*>(base_ + layout().extents)[index];
  }
  ExtentState state(std::uint64_t index) const { return {record(index).state.load()}; }
  std::uint64_t touched() const { return layout().extents_touched.load(); }

  std::uint64_t data(std::uint64_t index) const { return layout().data + index * kExtentBytes; }
  BlockOffset header(std::uint64_t index, std::uint32_t block) const {
    return {layout().headers + (index * kHeadersPerExtent + block) * kHeaderBytes};
  }
  std::uint64_t extent_of(BlockOffset block) const {
    return (block.value - layout().headers) / (kHeadersPerExtent * kHeaderBytes);
  }
  std::uint32_t index_in_extent(BlockOffset block) const {
    return (block.value - layout().headers) / kHeaderBytes % kHeadersPerExtent;
  }
  /// Whether this could be a header at all: for offsets that came in a message.
  bool is_header(BlockOffset block) const {
    return block.value >= layout().headers && block.value % kHeaderBytes == 0 && extent_of(block) < touched();
  }
  BlockMemory memory() const { return BlockMemory(base_); }
  BlockHeader::Kind kind(std::uint64_t index, std::uint32_t block) const {
    // acquire: what was written before the block got that kind is seen.
    return BlockHeader::kind(memory().header(header(index, block)).state.load(std::memory_order_acquire));
  }

  /// The 64-bit words of the extent's free hints: bit n says that block n may be free. Only a hint: the
  /// truth is the block's state, so a bit set twice or in vain does no harm.
  std::atomic<std::uint64_t>* hints(std::uint64_t index) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + layout().hints) + index * (kHeadersPerExtent / 64);
  }
  void set_hint(BlockOffset block) const;

  /// Whether a process has the extent registered with a device's driver (pinned_extents.h). "No" is sure only for who
  /// has claimed the extent, or has made the free block that it is of unused: a mark is set by a process that holds a
  /// live block there, so before that block's last hold went, and the claim came after that. From then on nobody sets
  /// one; it can only be taken back.
  bool is_pinned(std::uint64_t index) const { return record(index).pinned_by.load() != 0; }
  /// Takes the mark back where it still names `marker`. Repeatable.
  void unmark(std::uint64_t index, ProcessTag marker) const;

  /// Claims `count` neighbouring free extents that have pages already.
  std::optional<std::uint64_t> claim_warm(std::uint64_t count, std::uint32_t owner) const;
  /// Claims any. Throws OutOfSharedMemory where they, and `header_bytes` besides, would exceed the budget, or the
  /// address space is used up: nothing is claimed then.
  std::uint64_t claim_any(std::uint64_t count, std::uint32_t owner, std::uint64_t header_bytes) const;

  /// Makes a run free whose large block's header this process has turned to kUnused. Repeatable. With `punch` the
  /// pages go back to the system, but for extents that are pinned: those keep theirs.
  void release_run(std::uint64_t head, bool punch) const;
  void release_one(std::uint64_t index, ExtentState expected, bool punch) const;
  /// The same for the free large block of this run, if it still is one, in the name of `slot`.
  bool release_free_run(std::uint64_t head, std::uint32_t slot, bool punch) const;
  /// Gives idle extents back to the system, the last ones first, until at most `keep` are left besides pinned ones.
  void punch_idle(std::uint64_t keep, std::uint32_t slot) const;

  /// Looks through the whole table.
  ExtentCount count() const;
  /// The same, and sets the session's counters right.
  ExtentCount recount() const;
  void note_idle(std::int64_t change) const { layout().extents_idle.fetch_add(change); }

  /// Bytes of pages that the heap's file has now.
  std::uint64_t resident() const;

 private:
  enum class From { kWarm, kAny };
  std::optional<std::uint64_t> try_claim(std::uint64_t count, std::uint32_t owner, From from) const;
  void check_budget(std::uint64_t more_bytes, std::uint64_t asked) const;
  std::uint64_t pinned_in(std::uint64_t first, std::uint64_t count) const;

  std::byte* base_;
  int file_;
};

}  // namespace shoal
