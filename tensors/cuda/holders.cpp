#include <shoal/internal/tensors/cuda/holders.h>

#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>

#include <atomic>

namespace shoal {

bool is_only_hold(const Hold& hold) {
  const BlockMemory memory = Session::current().heap().memory();
  const BlockHeader& header = memory.header(hold.block());
  // By invariants I2 and I3 of BlockHeader: a hold may move from one word to another during the look, but then a hold
  // was added, and the change count tells. acquire: the loads stay in this order, and a word's zero brings the count
  // with it.
  const std::uint64_t before = header.state.load(std::memory_order_acquire);
  int holds = 0;
  memory.for_each_hold(hold.block(), [&](std::uint32_t, std::atomic<std::uint32_t>& word) {
    holds += word.load(std::memory_order_acquire) != 0;  // acquire: who let go has done so
    return holds < 2;
  });
  // acquire: not before the holds were counted and all of them seen.
  return holds == 1 && header.state.load(std::memory_order_acquire) == before;
}

void HolderCheck::look_at(BlockOffset block) {
  Session& session = Session::current();
  session.heap().memory().for_each_hold(block, [&](std::uint32_t, std::atomic<std::uint32_t>& word) {
    // A message's word, too: it may be one that its sender died before sending.
    const ProcessTag tag = ProcessTag::from_word(word.load(std::memory_order_acquire));
    if (!tag || tag == session.self()) return true;
    if (auto [entry, is_new] = alive_.try_emplace(tag.word(), true); is_new) entry->second = session.is_alive(tag);
    return true;
  });
}

void HolderCheck::reclaim_dead() {
  for (auto& [word, alive] : alive_)
    if (!alive) SessionCore::current().reclaim(ProcessTag::from_word(word));
}

}  // namespace shoal
