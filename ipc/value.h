// One value in shared memory, with its lock.
#pragma once

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/sync/shared_part.h>
#include <shoal/internal/ipc/sync/shared_type.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/rlock.h>

#include <atomic>
#include <cstdint>
#include <utility>

namespace shoal {

/// How a value lies in shared memory, in a block of its own. Pictured in docs/sync.md. There are two copies of it, and
/// `current` says which one counts, so a writer that is killed half-way leaves the old value whole.
template <class T>
struct ValueLayout {
  static constexpr std::uint32_t kMagic = 0x756c6176;  ///< "valu"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr const char* kName = "value";

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::atomic<std::uint32_t> current{0};
  std::uint32_t reserved = 0;
  alignas(alignof(T) > 16 ? alignof(T) : 16) unsigned char copies[2][sizeof(T)] = {};
};

/// A T that any threads of any processes read and change, like multiprocessing.Value. T is trivially copyable and has
/// no pointers into one process's memory. A handle: copies refer to the same value, also in other processes.
///
/// Each call takes the lock, an RLock that get_lock() returns, and is atomic. Hold the lock around several calls that
/// belong together. A process killed inside a call leaves the old value or the new one, never a mixture. A call that
/// takes the lock over from a dead holder has nothing to repair: the next get_lock().lock() is told.
template <SharedType T>
class Value {
 public:
  using value_type = T;

  explicit Value(const T& initial = T()) : Value(initial, RLock()) {}  ///< with a lock of its own
  /// Uses the caller's lock, which several values that change together may share. It is an RLock, because a holder goes
  /// on calling functions that take it.
  Value(const T& initial, RLock lock)
      : lock_(std::move(lock)), part_(SharedPart<ValueLayout<T>>::create(BlockType::kBytes, [&](auto& layout) {
          shared_type::copy_in(layout.copies[0], initial);
        })) {}

  /// A copy.
  T load() const {
    const Guard guard(lock_);
    return read();
  }
  /// Replaces the value.
  void store(const T& value) {
    const Guard guard(lock_);
    write(value);
  }
  /// Stores `value` and returns the value before.
  T exchange(const T& value) {
    const Guard guard(lock_);
    T before = read();
    write(value);
    return before;
  }
  /// Replaces the value v by change(v) while it holds the lock. Returns the new value. If `change` throws, the old
  /// value stays.
  template <class Change>
  T update(Change&& change) {
    const Guard guard(lock_);
    T after = change(read());
    write(after);
    return after;
  }
  /// Adds `amount` and returns the value before.
  T fetch_add(const T& amount)
    requires std::is_arithmetic_v<T>
  {
    const Guard guard(lock_);
    T before = read();
    write(static_cast<T>(before + amount));
    return before;
  }

  T value() const { return load(); }  ///< load()
  // NOLINTNEXTLINE(misc-unconventional-assign-operator): it does return *this.
  Value& operator=(const T& value) { return store(value), *this; }  ///< store()
  // NOLINTNEXTLINE(google-explicit-constructor): a Value reads as its value, as in Python.
  operator T() const { return load(); }  ///< load()

  RLock get_lock() const { return lock_; }  ///< the value's lock: a handle to the same one

 private:
  friend struct Codec<Value>;
  Value(RLock lock, SharedPart<ValueLayout<T>> part) : lock_(std::move(lock)), part_(std::move(part)) {}

  /// Holds the lock for a call.
  class Guard {
   public:
    explicit Guard(RLock& lock) : lock_(lock) { lock_.lock_untold(); }
    ~Guard() { lock_.unlock(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    RLock& lock_;
  };

  T read() const {
    // acquire: pairs with the release in write(), for the copy that it made current.
    return shared_type::copy_out<T>(part_->copies[part_->current.load(std::memory_order_acquire)]);
  }
  void write(const T& value) {
    // relaxed: with the lock held it is this thread's alone.
    const std::uint32_t other = part_->current.load(std::memory_order_relaxed) ^ 1;
    shared_type::copy_in(part_->copies[other], value);
    SHOAL_KILL_POINT("value.write.copied");
    // Release: a thread that inherits the lock from a process killed after this line reads what was copied (acquire in
    // read). Otherwise the lock's own order does it.
    part_->current.store(other, std::memory_order_release);
    SHOAL_KILL_POINT("value.write.done");
  }

  mutable RLock lock_;
  SharedPart<ValueLayout<T>> part_;
};

template <class T>
struct Codec<Value<T>> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Value", shared_type::hash<T>()); }
  static void encode(Encoder& encoder, const Value<T>& value) {
    shoal::encode(encoder, value.lock_);
    value.part_.encode(encoder);
  }
  static Value<T> decode(Decoder& decoder) {
    RLock lock = shoal::decode<RLock>(decoder);
    return Value<T>(std::move(lock), SharedPart<ValueLayout<T>>::decode(decoder));
  }
};

}  // namespace shoal
