// What the heap, the reclaimer and those that look on have to know of what lies in a block.
#pragma once

#include <shoal/internal/ipc/layout/block_header.h>

#include <cstddef>
#include <cstdint>

namespace shoal {

class Heap;

/// One for each BlockType, written beside the code that it calls. A member that is null means that there is nothing to
/// do. The functions are called in any process of the session, for blocks that other processes have made: what they
/// find in the payload was perhaps written by one that died in the middle of it. They may be called twice.
struct BlockKind {
  /// Gives back what the block holds, when nobody holds it any more and before it is freed.
  void (*close)(Heap& heap, BlockOffset block) noexcept = nullptr;
  /// Takes back what a dead process had of it. The dead one's hold still keeps the block.
  void (*recover)(std::byte* payload, ProcessTag dead) = nullptr;
  /// A process that held the block died otherwise than by leaving: those that wait there look up.
  void (*holder_crashed)(std::byte* payload) = nullptr;
  /// What a thread waits for that sleeps on the word at this place of the payload: "get", "lock".
  const char* (*wait_name)(std::uint64_t place) = nullptr;
};

/// Of any number that is found in a block's header.
const BlockKind& block_kind(BlockType type) noexcept;

// Defined by the folders of what they are about, and constant: they are there before any static initializer runs.
extern const BlockKind kBarrierKind, kConditionKind, kEventKind, kLockKind, kPipeEndKind, kRLockKind, kRingKind,
    kSemaphoreKind, kTaskLedgerKind;

}  // namespace shoal
