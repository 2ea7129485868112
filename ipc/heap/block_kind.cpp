#include <shoal/internal/ipc/heap/block_kind.h>

namespace shoal {
namespace {

constexpr BlockKind kPlain{};  // bytes: nothing to do
/// Of ranks that do collectives, in workers/, which this library does not link.
constexpr BlockKind kGroupKind{.wait_name = [](std::uint64_t) { return "collective"; }};

}  // namespace

const BlockKind& block_kind(BlockType type) noexcept {
  switch (type) {
    case BlockType::kRing:
      return kRingKind;
    case BlockType::kBarrier:
      return kBarrierKind;
    case BlockType::kPipeEnd:
      return kPipeEndKind;
    case BlockType::kSemaphore:
      return kSemaphoreKind;
    case BlockType::kEvent:
      return kEventKind;
    case BlockType::kCondition:
      return kConditionKind;
    case BlockType::kTaskLedger:
      return kTaskLedgerKind;
    case BlockType::kLock:
      return kLockKind;
    case BlockType::kRLock:
      return kRLockKind;
    case BlockType::kGroup:
      return kGroupKind;
    case BlockType::kContainer:
      return kContainerKind;
    case BlockType::kParcel:
      return kParcelKind;
    case BlockType::kBytes:
    case BlockType::kHoldChunk:
    case BlockType::kTrace:
    case BlockType::kReadOnly:
      break;
  }
  return kPlain;
}

}  // namespace shoal
