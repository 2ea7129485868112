// Memory that buckets of gradients have for as long as they need it.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace shoal {

/// Lends memory of the shared heap to storages whose views the Reducer keeps for good: between two loans they keep their
/// size, and their address is that of pages which nobody has touched, so they cost nothing, and a stray write harms
/// nobody. What came back is lent again, so that a few blocks serve all buckets of a step, and collectives know them.
/// Threads: any; a storage is given and taken by one at a time, while nobody uses its views.
class BucketMemory {
 public:
  /// The storage has no memory from now on; what it had is freed.
  void empty(c10::StorageImpl& storage);
  /// The storage has memory of its size, with any content. Does nothing if it has some.
  void give(c10::StorageImpl& storage);
  /// The memory is kept for others. Does nothing if the storage has none.
  void take(c10::StorageImpl& storage);
  bool has_memory(const c10::StorageImpl& storage) const;
  /// Of what nobody has: keeps no more than the two largest blocks, for the next step.
  void trim();

 private:
  struct Block {
    std::size_t bytes;
    c10::DataPtr memory;
  };
  struct Lent {
    const c10::StorageImpl* storage;
    std::size_t bytes;  // of the block, which may be larger than the storage
  };
  c10::DataPtr untouched(std::size_t bytes);

  mutable std::mutex mutex_;
  std::shared_ptr<void> pages_;  // that nobody touches, as many as the largest storage has
  std::size_t pages_bytes_ = 0;
  std::vector<Block> kept_;
  std::vector<Lent> lent_;
};

}  // namespace shoal
