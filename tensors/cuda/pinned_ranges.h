// Parts of the shared heap that this process has pinned for its devices. Not for users: see pinned.h.
#pragma once

#include <c10/core/Device.h>
#include <shoal/internal/ipc/heap/pinned_extents.h>
#include <shoal/internal/tensors/cuda/holders.h>
#include <shoal/ipc/heap.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

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

  /// kTensor: for as long as somebody has the block. kWords: until unpin().
  enum class Use { kTensor, kWords };
  /// Does nothing if the block is pinned already. The registration is kept by the device's context. DeviceError if the
  /// driver refuses.
  void pin(const Hold& block, c10::Device device, Use use = Use::kTensor);
  /// Unpins the block; false if it was not pinned. If no other pinned block lies in the same range, this unregisters
  /// the range, and waits for the device.
  bool unpin(const Hold& block);
  bool contains(const Hold& block) const;
  /// To be called before a block's memory becomes a tensor's: CUDA refuses a copy of memory that begins in one
  /// registration and ends behind it. So what rests in the block's extents, cut otherwise than they are now, is
  /// unregistered. Nothing is done in all other cases, and from here on none such comes up as long as the block lives.
  void make_way(const Hold& block) {
    // relaxed: ranges that concern the block were there before it was handed out.
    if (count_.load(std::memory_order_relaxed) != 0) end_cut_otherwise(block);
  }
  /// Looks which blocks are still in use, and unregisters ranges that have rested for kRest by `now` (Clock's max: all
  /// that rest). Returns true if some are left to look at.
  bool collect(HolderCheck& holders, Clock::time_point now);

  struct Counts {
    std::size_t blocks = 0, ranges = 0, bytes = 0;  // blocks: tensors' in use when they were looked at last
  };
  Counts counts() const;

 private:
  struct Pin {
    Hold hold;  // only if the range is not marked
    Use use;
  };
  struct Range {
    ExtentRange extents;
    c10::Device device;
    bool is_marked;
    std::map<std::uint64_t, Pin> blocks{};  // in use, by their offsets
    std::optional<Clock::time_point> resting_since{};
    bool is_ending = false;  // being unregistered, outside the lock: whoever needs its extents waits
  };
  using Ranges = std::map<std::uint64_t, Range>;  // by the first extent; no two overlap
  using Lock = std::unique_lock<std::mutex>;

  Ranges::iterator find(ExtentRange extents);
  std::vector<Ranges::iterator> overlapping(ExtentRange extents);
  void begin(const Hold& block, ExtentRange extents, c10::Device device, Use use);
  void end(Lock& lock, const std::vector<Ranges::iterator>& ending);
  void end_cut_otherwise(const Hold& block);
  bool make_room(Lock& lock, ExtentRange extents);

  mutable std::mutex mutex_;  // not held while the driver unregisters, which waits for the device
  std::condition_variable ended_;
  Ranges ranges_;
  std::atomic<std::size_t> count_{0};
};

}  // namespace shoal
