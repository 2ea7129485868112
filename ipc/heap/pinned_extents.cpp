#include <shoal/internal/ipc/heap/pinned_extents.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>

namespace shoal {
namespace {

const Extents& all_extents() { return Session::current().heap().extents(); }

}  // namespace

ExtentRange extents_of(BlockOffset block) {
  const std::uint64_t first = all_extents().extent_of(block);
  const ExtentState state = all_extents().state(first);
  return {first, state.use() == ExtentRecord::kHead ? state.run() : 1};
}

std::span<std::byte> bytes_of(ExtentRange extents) {
  return {SessionCore::current().base() + all_extents().data(extents.first), extents.count * kExtentBytes};
}

bool mark_pinned(ExtentRange range) {
  SessionCore& session = SessionCore::current();
  const Extents& extents = all_extents();
  for (std::uint64_t i = range.first; i < range.end(); ++i)
    if (const auto other = ProcessTag::from_word(extents.record(i).pinned_by.load()); other && !session.is_alive(other))
      session.reclaim(other);
  for (std::uint64_t i = range.first; i < range.end(); ++i) {
    std::uint32_t expected = 0;
    if (!extents.record(i).pinned_by.compare_exchange_strong(expected, session.self().word())) {
      unmark_pinned({range.first, i - range.first});
      return false;
    }
    SHOAL_KILL_POINT("extents.mark.one");
  }
  return true;
}

void unmark_pinned(ExtentRange range) noexcept {
  for (std::uint64_t i = range.first; i < range.end(); ++i) all_extents().unmark(i, Session::current().self());
}

bool is_live(BlockOffset block, ExtentRange range) noexcept {
  const BlockHeader::Kind kind = all_extents().kind(range.first, all_extents().index_in_extent(block));
  return (kind == BlockHeader::kLive || kind == BlockHeader::kClosing) && extents_of(block) == range;
}

}  // namespace shoal
