// What the heap, the reclaimer and observers have to know about each type of block.
#pragma once

#include <shoal/internal/ipc/layout/block_header.h>

#include <cstddef>
#include <cstdint>

namespace shoal {

class Heap;

/// One for each BlockType, defined beside the code that it calls. A null member means that there is nothing to do. Any
/// process of the session may call the functions, for blocks that other processes have made, and may call them twice. A
/// process that died in the middle may have written what they find in the payload.
struct BlockKind {
  /// Gives back what the block holds, when nobody holds it any more and before it is freed.
  void (*close)(Heap& heap, BlockOffset block) noexcept = nullptr;
  /// Takes back what a dead process had of the block. The dead one's hold still keeps it.
  void (*recover)(std::byte* payload, ProcessTag dead) = nullptr;
  /// A process that held the block crashed (died without leaving): wakes those that wait there.
  void (*holder_crashed)(std::byte* payload) = nullptr;
  /// What a thread waits for if it sleeps on the word at this place of the payload: "get", "lock".
  const char* (*wait_name)(std::uint64_t place) = nullptr;
};

/// The kind for any number that a block's header may have.
const BlockKind& block_kind(BlockType type) noexcept;

// Defined in the folders of the objects, and constant: they are there before any static initializer runs.
extern const BlockKind kBarrierKind, kConditionKind, kContainerKind, kEventKind, kLockKind, kParcelKind, kPipeEndKind,
    kRLockKind, kRingKind, kSemaphoreKind, kTaskLedgerKind;

}  // namespace shoal
