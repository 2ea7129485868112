// Fetching the cells of a ring before they are needed.
#pragma once

#include <shoal/internal/ipc/base/prefetch.h>
#include <shoal/internal/ipc/ring/layout.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// A cell's cache lines come from the other side's CPU, which takes longer than all the rest of a put or get. Each
/// claim waits for its own lines, since a read-modify-write lets nothing that follows start early. So several messages
/// ahead the lines are asked for in advance, but only if the other side is well away from there: otherwise it would
/// lose a line that it works on. This remembers where the other side was last seen, since its position is a line of its
/// own that it works on.
///
/// One for each side of a ring, in a Ring object, process-local. Threads: any; if one forgets what another saw, that
/// costs only an advice. Nothing here decides anything.
template <bool kPut>
class LookAhead {
 public:
  LookAhead() = default;
  LookAhead(LookAhead&& other) noexcept : seen_(other.seen_.load(kAdvice)) {}
  LookAhead& operator=(LookAhead&& other) noexcept {
    seen_.store(other.seen_.load(kAdvice), kAdvice);
    return *this;
  }

  /// This process claimed `ticket`; `other_side` is the other side's position.
  void claimed(RingLayout& layout, RingTicket ticket, const std::atomic<std::uint64_t>& other_side) {
    if (layout.capacity < 4 * kAhead) return;
    if (!is_far(layout, ticket)) {
      if (skip_.load(kAdvice) > 0) {
        skip_.store(skip_.load(kAdvice) - 1, kAdvice);
        return;
      }
      seen_.store(other_side.load(kAdvice), kAdvice);
      if (!is_far(layout, ticket)) {
        skip_.store(kAhead, kAdvice);  // close by: not asked at each message
        return;
      }
    }
    std::uint32_t index = ticket.index() + kAhead;
    if (index >= layout.capacity) index -= layout.capacity;
    fetch(&layout.cells()[index]);
  }

 private:
  static constexpr std::uint32_t kAhead = 8;
  static constexpr auto kAdvice = std::memory_order_relaxed;  // relaxed, all of them: nothing here decides anything

  bool is_far(RingLayout& layout, RingTicket ticket) const {
    const RingTicket other{seen_.load(kAdvice)};
    if (kPut) return other.distance_to(ticket, layout.capacity) < std::int64_t(layout.capacity - 2 * kAhead);
    return ticket.distance_to(other, layout.capacity) > std::int64_t(kAhead);
  }
  /// Fetches both lines of the cell for writing.
  static void fetch(RingCell* cell) {
    const auto* line = reinterpret_cast<const std::byte*>(cell);
    prefetch_to_write(line);
    prefetch_to_write(line + 64);
  }

  std::atomic<std::uint64_t> seen_{0};
  std::atomic<std::uint32_t> skip_{0};
};

using PutAhead = LookAhead<true>;
using GetAhead = LookAhead<false>;

}  // namespace shoal
