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

/// This process's view of the extent table. Free extents are claimed and given back by CAS, one by
/// one; a process that dies with some claimed has them given back by reclaim. Owned by the Heap;
/// threads: any. All atomics here are seq_cst: none of it is on the fast path.
class Extents {
 public:
  explicit Extents(std::byte* base) : base_(base) {}

  SessionLayout& layout() const { return *reinterpret_cast<SessionLayout*>(base_); }
  ExtentRecord& record(std::uint64_t index) const {
    return reinterpret_cast<ExtentRecord*>(base_ + layout().extents)[index];
  }
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

  /// The 64-bit words of the extent's free hints: bit n says that block n may be free. Only a hint: the
  /// truth is the block's state, so a bit set twice or in vain does no harm.
  std::atomic<std::uint64_t>* hints(std::uint64_t index) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + layout().hints) + index * (kHeadersPerExtent / 64);
  }
  void set_hint(BlockOffset block) const;

  /// Claims `count` neighbouring free extents for `owner`, those that have pages already first. Throws
  /// OutOfSharedMemory where new pages would exceed the budget or the address space is used up.
  std::uint64_t claim(std::uint64_t count, std::uint32_t owner) const;

  /// Makes a run free whose large block's header this process has turned to kUnused. Repeatable.
  void release_run(std::uint64_t head, bool punch) const;
  void release_one(std::uint64_t index, ExtentState expected, bool punch) const;

  /// Bytes of pages that the heap's file has now.
  void set_file(int descriptor) { file_ = descriptor; }
  std::uint64_t resident() const;

 private:
  std::optional<std::uint64_t> try_claim(std::uint64_t count, std::uint32_t owner, bool cold_too) const;
  void check_budget(std::uint64_t new_extents) const;

  std::byte* base_;
  int file_ = -1;
};

}  // namespace shoal
