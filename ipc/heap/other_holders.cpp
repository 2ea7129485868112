#include <shoal/internal/ipc/heap/other_holders.h>

#include <shoal/internal/ipc/process/liveness_watch.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>

namespace shoal {

bool is_held_by_others(BlockOffset block) {
  SessionCore& session = SessionCore::current();
  const std::uint32_t me = session.self().word();
  bool others = false;
  session.heap().memory().for_each_hold(block, [&](std::uint32_t, std::atomic<std::uint32_t>& hold) {
    const std::uint32_t word = hold.load(std::memory_order_acquire);  // acquire: the record is not older
    const ProcessTag tag = ProcessTag::from_word(word);
    // In transit: whoever receives it will be there.
    others = word != 0 && word != me && (word != tag.word() || counts_as_alive(session, tag));
    return !others;
  });
  return others;
}

}  // namespace shoal
