// Parts of the shared heap that this process has pinned for its devices. Not for users: see pinned.h.
#pragma once

#include <c10/core/Device.h>
#include <shoal/internal/ipc/heap/pinned_extents.h>
#include <shoal/internal/tensors/cuda/holders.h>
#include <shoal/ipc/heap.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace shoal {

/// Whole extents of the heap are registered with the device's driver, each once, however many pinned blocks lie in it.
/// While they are, they must not be given back to the system: the driver would go on reading and writing pages that are
/// nobody's. So they are marked (pinned_extents.h) and stay while their blocks come and go: a block that is freed, used
/// again and pinned again is registered already. A range without a pinned block in use *rests*, and is unregistered
/// after kRest. If another process has the mark, this one holds the pinned blocks instead, and unregisters the range
/// once nobody else holds them.
///
/// One a process, owned by DeviceIpc. Threads: any. Registrations end with the process, and its marks when it is
/// reclaimed.
class PinnedRanges {
 public:
  using Clock = std::chrono::steady_clock;
  /// Registering takes milliseconds, so a block that comes back after seconds costs a thousandth to register anew.
  /// Until then the memory is kept from the system, and from other processes that want to pin it.
  static constexpr std::chrono::seconds kRest{5};

  /// Does nothing if the block is pinned already. DeviceError if the driver refuses.
  void pin(const Hold& block, c10::DeviceType type);
  /// Unpins the block; false if it was not pinned. Takes effect at once if no other pinned block lies in the same
  /// range.
  bool unpin(const Hold& block);
  bool contains(const Hold& block) const;
  /// Looks which blocks are still in use, and unregisters ranges that have rested for kRest by `now` (Clock's max: all
  /// that rest). Returns true if some are left.
  bool collect(HolderCheck& holders, Clock::time_point now);

  struct Counts {
    std::size_t blocks = 0, ranges = 0, bytes = 0;  // blocks: in use when they were looked at last
  };
  Counts counts() const;

 private:
  struct Range {
    ExtentRange extents;
    c10::Device device;
    bool is_marked;
    /// By the offset of a block in use. With a hold only if the range is not marked.
    std::map<std::uint64_t, Hold> blocks;
    std::optional<Clock::time_point> resting_since;
  };
  using Ranges = std::map<std::uint64_t, Range>;  // by the first extent; no two overlap

  Ranges::iterator find(ExtentRange extents);
  void end_overlapping(ExtentRange extents);
  Ranges::iterator begin_range(const Hold& block, ExtentRange extents, c10::DeviceType type);
  Ranges::iterator end_range(Ranges::iterator at);

  mutable std::mutex mutex_;
  Ranges ranges_;
};

}  // namespace shoal
