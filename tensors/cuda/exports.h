// Storages on devices that this process has shared. Not for users.
#pragma once

#include <c10/core/Storage.h>
#include <shoal/internal/tensors/cuda/holders.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/ipc/heap.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace shoal {

/// What a message carries of a storage on a device: its export and, if it is shared by descriptors, an offer of each
/// piece's (ipc/descriptor/offers).
struct DeviceHolds {
  Hold block;
  std::vector<Hold> offers;
};

/// This process's storages that others have, or have been sent: each is kept until only this process holds its export
/// block. The collector looks through them. One a process, owned by DeviceIpc. Threads: any. When this process dies,
/// the memory is gone, and the blocks say so by naming it; collect() notices a holder that dies.
class Exports {
 public:
  /// The storage's export, made if there is none yet, with holds of the caller's own, for a message. From then on the
  /// storage cannot be resized: that would free what others use.
  DeviceHolds share(const c10::Storage& storage);
  /// The storage of an export that came back to its maker; null if it is none (any more).
  c10::Storage find(BlockOffset block) const;

  /// Lets go of exports that nobody else holds any more, and looks at the holders of the others. Returns true if some
  /// are left. On return the memory of those let go of is free, whichever thread found them.
  bool collect(HolderCheck& holders);
  /// The same, but waits for no other thread that collects: that one may be waiting for a lock of the caller's. Does
  /// nothing while another thread is in here. Returns whether it let go of any.
  bool collect_for_allocator();

  /// Whether others alone have much of a device's memory: storages of which this process has no tensor any more, half as
  /// large together as what is free there or larger. Those that were waited for do not count. Asks the driver.
  bool others_have_much() const;
  /// Those that others alone have were waited for, and are still there.
  void note_waited();

  /// Asks whoever keeps one of the storages in stock, without a tensor in it, to give it up. Sharing it again takes that
  /// back.
  void want_back() const;

  struct Counts {
    std::size_t storages = 0, bytes = 0, bases = 0;
  };
  Counts counts() const;

 private:
  struct Base {
    DeviceMemory::Base memory;
    std::uint64_t number;
    MemoryHandle handle;
    Hold offer;  // of its descriptor
  };
  struct Export {
    c10::Storage storage;
    Hold block;
    std::vector<std::shared_ptr<Base>> bases;  // one, or neighbouring pieces
    bool waited_for = false;                   // by an allocator, in vain, since it was last sent

    bool is_others_alone() const { return storage.use_count() == 1; }
  };
  using BasePtr = std::shared_ptr<Base>;
  BasePtr base_of(const std::byte* address, c10::Device device);
  Export make(const c10::Storage& storage);
  void find_released(HolderCheck& holders);
  bool free_released();
  static DeviceHolds holds_of(const Export& exported);
  static void say_wanted(const Export& exported, bool wanted);

  std::atomic<bool> for_allocator_{false};
  std::vector<Export> released_;     // to be freed
  std::recursive_mutex collecting_;  // recursive: what frees the memory may be code of the user's
  mutable std::mutex mutex_;
  std::unordered_map<const c10::StorageImpl*, Export> by_storage_;
  std::unordered_map<std::uint64_t, const c10::StorageImpl*> by_block_;
  std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, std::byte*>, std::weak_ptr<Base>> bases_;  // by their start
  std::uint64_t next_base_ = 1;
};

}  // namespace shoal
