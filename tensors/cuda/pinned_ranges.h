// Parts of the shared heap that this process has pinned for its devices. Not for users: see pinned.h.
#pragma once

#include <c10/core/Device.h>
#include <shoal/ipc/heap.h>
#include <shoal/tensors/cuda/holders.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

namespace shoal {

/// Whole extents of the heap are registered with the device's driver, each once, however many pinned blocks lie in it.
/// A pinned block is held, so that its extents are not given back to the system while the driver has their pages: it
/// would go on reading and writing pages that are nobody's. When nobody else holds it any more, collect() unregisters
/// first and then lets go. One a process, owned by DeviceIpc. Threads: any. Registrations end with the process.
class PinnedRanges {
 public:
  /// Does nothing where the block is pinned already. DeviceError where the driver refuses.
  void pin(const Hold& block, c10::DeviceType type);
  /// False where it was not pinned.
  bool unpin(BlockOffset block);
  bool contains(BlockOffset block) const;
  /// True where some are left.
  bool collect(HolderCheck& holders);

  struct Counts {
    std::size_t blocks = 0, ranges = 0, bytes = 0;
  };
  Counts counts() const;

 private:
  struct Range {
    std::size_t bytes;
    int blocks;
    c10::Device device;
  };
  using Ranges = std::map<std::byte*, Range>;
  struct Pin {
    Hold hold;
    Ranges::iterator range;
  };
  using Pins = std::unordered_map<std::uint64_t, Pin>;
  Pins::iterator let_go(Pins::iterator pin);

  mutable std::mutex mutex_;
  Ranges ranges_;  // by their start
  Pins pins_;      // by block
};

}  // namespace shoal
