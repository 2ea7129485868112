// A dictionary of messages: what Dict and Namespace are made of.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/containers/container.h>
#include <shoal/internal/ipc/containers/parcel.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace shoal {

class LockedShelf;
struct Slot;

/// A key as it is compared: its bytes, and their hash.
struct KeyBytes {
  /// The longest key: it is compared with others under a lock.
  static constexpr std::size_t kMost = 16 << 20;
  /// Throws std::invalid_argument for a longer one.
  explicit KeyBytes(std::span<const std::byte> key);
  std::span<const std::byte> bytes;
  std::uint64_t hash;
};

/// What DictCore::put does besides.
struct PutOptions {
  std::uint64_t schema = 0;
  bool mortal = false;     // the entry goes when this process ends
  bool if_absent = false;  // what is there stays, and is what is returned
};

/// Keys and values as bytes and holds, on shelves by the key's hash, each an open hash table with a lock. A handle.
/// Threads and processes: any, at once. Every function has happened or has not when its process is killed.
class DictCore {
 public:
  static DictCore create(ContainerKind kind, std::uint64_t schema) {
    return DictCore(Container::create(kind, schema, ContainerLayout::kMostShelves));
  }
  explicit DictCore(Container container) : container_(std::move(container)) {}
  const Container& container() const { return container_; }

  /// False if the key is not there. `entry`: null if only that is asked.
  bool get(const KeyBytes& key, Entry* entry) const;
  /// Waits for the key. False at the deadline; throws PeerDied if nobody is left who could bring it.
  bool wait_for(const KeyBytes& key, Entry& entry, Deadline deadline) const;
  /// False if options.if_absent and the key was there: its value is then in `present`. So is the new value, if it brought
  /// handles: what is encoded may lie elsewhere than what it was made of.
  bool put(const KeyBytes& key, Encoder& value, const PutOptions& options, Entry* present = nullptr);
  /// Takes the key out. False if it is not there. `taken`: null if the value is not asked for.
  bool take(const KeyBytes& key, const Taken& taken);
  /// Takes out the entry whose key came last, with its key. False if there is none.
  bool take_last(const Taken& taken);
  /// Calls change(entry, next) with the lock held: entry is null if the key is not there. What is written to next
  /// becomes the value. If change throws, nothing happens. Returns the new value if it brought handles; see put().
  using Change = std::function<void(const Entry* now, Encoder& next)>;
  Entry update(const KeyBytes& key, std::uint64_t schema, const Change& change);

  std::size_t size() const;
  void clear();
  /// A hold on each parcel that is there at one moment, in the order in which the keys came.
  std::vector<Entry> snapshot() const;

 private:
  std::uint32_t shelf_of(const KeyBytes& key) const { return std::uint32_t(key.hash >> 60) % container_->shelves; }
  static Slot* find(const LockedShelf& shelf, const KeyBytes& key);
  /// Null also for one whose process is dead, which is removed.
  static Slot* find_living(LockedShelf& shelf, const KeyBytes& key);
  static void place(LockedShelf& shelf, Slot* found, const KeyBytes& key, Hold parcel);
  static void make_room(LockedShelf& shelf);
  static void remove(LockedShelf& shelf, Slot& slot);

  Container container_;
};

}  // namespace shoal
