#include <shoal/internal/ipc/heap/block.h>

namespace shoal {

std::atomic<std::uint32_t>* BlockMemory::hold_word(BlockOffset block, std::uint32_t index) const {
  return HoldProtocol(*this).hold_word(block, index);
}

bool BlockMemory::try_add_hold(BlockOffset block, std::uint32_t word, HoldRef& added) const {
  return HoldProtocol(*this).try_add_hold(block, word, added);
}

bool BlockMemory::try_set_word(BlockOffset block, std::uint32_t word, HoldRef& added) const {
  return HoldProtocol(*this).try_set_word(block, word, added);
}

void BlockMemory::add_chunk(BlockOffset block, BlockOffset chunk) const { HoldProtocol(*this).add_chunk(block, chunk); }

bool BlockMemory::drop_hold(const HoldRef& hold, ProcessTag closer) const {
  return HoldProtocol(*this).drop_hold(hold, closer);
}

bool BlockMemory::try_close(BlockOffset block, ProcessTag closer) const {
  return HoldProtocol(*this).try_close(block, closer);
}

}  // namespace shoal
