// The session's extents: which are free, and who owns the others.
#pragma once

#include <shoal/internal/ipc/heap/block.h>
#include <shoal/internal/ipc/heap/extent_protocol.h>
#include <shoal/internal/ipc/layout/extent_state.h>
#include <shoal/internal/ipc/layout/session_layout.h>

#include <cstdint>
#include <optional>

namespace shoal {

/// What one look through the extent table saw.
struct ExtentCount {
  std::uint64_t committed = 0;     // extents that may have pages
  std::uint64_t idle = 0;          // of these: free, or of a large block that is free
  std::uint64_t idle_pinned = 0;   // of these: registered with a device's driver, so they keep their pages
  std::uint64_t header_bytes = 0;  // of the blocks of those that hold small ones
};

/// This process's view of the extent table, and the memory that the protocol of extents works on. Its counters
/// (committed, idle, header bytes) may be off; the words are the truth. Owned by the Heap; threads: any. All atomics
/// here are seq_cst: none of it is on the fast path.
class Extents {
 public:
  explicit Extents(std::byte* base) : base_(base) {}

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
  /// Whether this offset, which came in a message, could be a header's at all.
  bool is_header(BlockOffset block) const {
    return block.value >= layout().headers && block.value % kHeaderBytes == 0 && extent_of(block) < touched();
  }
  BlockMemory memory() const { return BlockMemory(base_); }
  static bool is_in_use(BlockHeader::Kind kind) { return kind == BlockHeader::kLive || kind == BlockHeader::kClosing; }
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
  /// Tells the owner of a large block that it is free. If that is wrong by now, it does no harm either.
  void tell_owner(std::uint64_t head) const;

  /// Who may change an extent's word, and how; in the name of this process.
  ExtentProtocol<Extents> protocol() const;
  // What the protocol asks of its memory.
  std::atomic<std::uint64_t>& extent(std::uint64_t index) const { return record(index).state; }
  std::atomic<std::uint64_t>& head_state(std::uint64_t index) const { return memory().header(header(index, 0)).state; }
  /// Whether a process has registered the extent with a device's driver (pinned_extents.h). `false` is final only for a
  /// caller that has claimed the extent, or cut the run that it is part of. Only a process that holds a live block
  /// there sets a mark, so before that block's last hold went, and the claim came after that. From then on a mark is
  /// only taken back.
  bool is_pinned(std::uint64_t index) const { return record(index).pinned_by.load() != 0; }
  /// Gives the pages back to the system; false if the kernel refuses, so that they are still there.
  bool give_back(std::uint64_t index) const;
  void went_cold() const {
    layout().extents_committed.fetch_sub(1);
    note_idle(-1);
  }

  /// Takes the mark of a registration back if it still names `marker`. Repeatable.
  void unmark(std::uint64_t index, ProcessTag marker) const;

  /// Claims `count` neighbouring free extents that have pages already.
  std::optional<std::uint64_t> claim_warm(std::uint64_t count) const;
  /// Claims any free extents. Throws OutOfSharedMemory if they, and `header_bytes` besides, would exceed the budget, or
  /// the address space is used up; then nothing is claimed.
  std::uint64_t claim_any(std::uint64_t count, std::uint64_t header_bytes) const;

  /// Throws OutOfSharedMemory if `more_bytes` are not within the budget. The rest of `asked` is claimed already.
  void check_budget(std::uint64_t more_bytes, std::uint64_t asked) const;

  /// Makes the extents of a large block free if the block is; false if it is not. Pages that are given back go to the
  /// system, except for pinned extents, which keep theirs.
  bool release_free_run(std::uint64_t head, ExtentPages pages) const;
  /// Gives idle extents back to the system, the last ones first, until at most `keep` are left besides pinned ones.
  void punch_idle(std::uint64_t keep) const;
  /// Takes back what a dead process had of this extent.
  void reclaim(std::uint64_t index, ProcessTag dead) const;

  /// Looks through the whole table.
  ExtentCount count() const;
  /// Like count(), and sets the session's counters right.
  ExtentCount recount() const;
  void note_idle(std::int64_t change) const { layout().extents_idle.fetch_add(change); }

  /// Bytes of pages that the heap's file has now.
  std::uint64_t resident() const;

 private:
  enum class From { kWarm, kAny };
  std::optional<std::uint64_t> try_claim(std::uint64_t count, From from) const;
  bool claim_run(std::uint64_t first, std::uint64_t count, From from) const;
  bool has_block_in_use(std::uint64_t index) const;
  std::uint64_t pinned_in(std::uint64_t first, std::uint64_t count) const;

  std::byte* base_;
};

}  // namespace shoal
