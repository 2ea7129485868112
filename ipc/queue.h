// Queue<T>: values between any number of processes.
#pragma once

#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/internal/ipc/ring/task_ledger.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

namespace shoal {

/// How much fits into a queue, and what it is called.
struct QueueOptions {
  std::size_t capacity = 1024;    ///< messages, 1 to 16,777,215
  std::size_t byte_capacity = 0;  ///< bytes of messages and of the blocks that travel with them; 0: no limit
  std::string name = {};          ///< its name in `shoal top` and `shoal trace`; the first 23 bytes count
};

namespace detail {
[[noreturn]] void raise(RingStatus status, const char* operation);
Ring make_ring(const QueueOptions& options, std::uint64_t schema);
}  // namespace detail

template <class T>
class JoinableQueue;

/// A first in, first out queue of values, like torch.multiprocessing.Queue. A handle: copies refer to the same queue,
/// also in other processes (queues are encodable). Threads and processes: any, at once.
///
/// - put() encodes the value in the caller's thread. If that fails, put() throws and the queue is unchanged. The value
///   itself is never altered.
/// - A producer that dies leaves only whole messages. A consumer that dies takes the message that it had taken with it.
/// - A wait throws PeerDied if processes that held the queue crashed and only the caller's process still has it.
/// - When the last handle of all processes is gone, messages left in the queue are dropped and their memory is freed.
template <class T>
class Queue {
 public:
  /// Throws std::invalid_argument if the capacity is 0 or too large.
  explicit Queue(const QueueOptions& options = {})
      : ring_(std::make_shared<Ring>(detail::make_ring(options, schema_of<T>()))) {}
  /// `capacity` in messages.
  explicit Queue(std::size_t capacity) : Queue(QueueOptions{.capacity = capacity}) {}

  /// Waits for room. Throws QueueClosed, PeerDied, OutOfSharedMemory, and what encoding throws.
  void put(const T& value) { check(put_until(value, Deadline::never()), "put"); }
  /// Like put(); throws TimeoutError after `timeout`.
  void put(const T& value, std::chrono::nanoseconds timeout) {
    check(put_until(value, Deadline::after(timeout)), "put");
  }
  /// Like put(), but returns false if there is no room now.
  bool try_put(const T& value) {
    RingStatus status = put_until(value, Deadline::now());
    if (status == RingStatus::kTimedOut) return false;
    check(status, "try_put");
    return true;
  }

  /// Waits for a value. Throws QueueClosed (the queue is closed and empty), PeerDied, DecodeError.
  T get() { return *get_until(Deadline::never(), "get", true); }
  /// Like get(); throws TimeoutError after `timeout`.
  T get(std::chrono::nanoseconds timeout) { return *get_until(Deadline::after(timeout), "get", true); }
  /// Like get(), but returns nothing if there is no value now.
  std::optional<T> try_get() { return get_until(Deadline::now(), "try_get", false); }

  /// From now on put() throws QueueClosed; get() returns the values left and then throws QueueClosed.
  void close() { ring_->close(); }
  bool is_closed() const { return ring_->is_closed(); }       ///< whether close() was called, by whatever process
  std::size_t capacity() const { return ring_->capacity(); }  ///< messages that fit
  std::size_t byte_capacity() const { return ring_->byte_capacity(); }  ///< bytes that fit; 0: no limit
  std::string name() const { return ring_->name(); }                    ///< as given to the constructor
  /// The number of values at some moment during the call. Like empty() and full() it may be out of date on return.
  std::size_t qsize() const { return ring_->size(); }
  bool empty() const { return qsize() == 0; }          ///< whether there is no value in it
  bool full() const { return qsize() >= capacity(); }  ///< whether there is no room for another message
  /// The bytes in a queue with a byte capacity; 0 for other queues.
  std::size_t bytes() const { return ring_->bytes(); }

  /// Makes a value in shared memory, to fill in place and then put, so that nothing is copied: `loan({3, 4})` of a
  /// Queue<at::Tensor>, `loan(1 << 20)` of a Queue<SharedBytes>. If it is never put, it is freed like any other value.
  template <class... Arguments>
    requires requires(Arguments&&... arguments) { Codec<T>::loan(std::forward<Arguments>(arguments)...); }
  T loan(Arguments&&... arguments) const {
    return Codec<T>::loan(std::forward<Arguments>(arguments)...);
  }
  /// A loan whose sizes are in braces: `loan({3, 4}, at::kFloat)`.
  template <class... Arguments>
    requires requires(std::initializer_list<std::int64_t> sizes, Arguments&&... arguments) {
      Codec<T>::loan(sizes, std::forward<Arguments>(arguments)...);
    }
  T loan(std::initializer_list<std::int64_t> sizes, Arguments&&... arguments) const {
    return Codec<T>::loan(sizes, std::forward<Arguments>(arguments)...);
  }

 private:
  friend struct Codec<Queue>;
  friend class JoinableQueue<T>;
  Queue(std::shared_ptr<Ring> ring, std::shared_ptr<TaskLedger> tasks)
      : ring_(std::move(ring)), tasks_(std::move(tasks)) {}

  static void check(RingStatus status, const char* operation) {
    if (status != RingStatus::kDone) detail::raise(status, operation);
  }
  RingStatus put_until(const T& value, Deadline deadline) {
    Encoder encoder;
    encode(encoder, value);
    return ring_->put(encoder, deadline, tasks_.get());
  }
  std::optional<T> get_until(Deadline deadline, const char* operation, bool must) {
    Received message;
    RingStatus status = ring_->get(message, deadline, tasks_.get());
    if (status == RingStatus::kTimedOut && !must) return std::nullopt;
    check(status, operation);
    Decoder decoder = std::move(message).decoder();
    std::optional<T> value(decode<T>(decoder));
    decoder.finish();
    return value;
  }

  std::shared_ptr<Ring> ring_;
  std::shared_ptr<TaskLedger> tasks_;  // of a JoinableQueue, also if it is used as a Queue
};

template <class T>
struct Codec<Queue<T>> {
  static constexpr char kRing = 0;  // its address: a ring of Ts
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("shoal::Queue", schema_of<T, Outer...>());
  }
  static void encode(Encoder& encoder, const Queue<T>& queue) {
    encoder.write(encoder.add(queue.ring_->hold()));
    shoal::encode(encoder, queue.tasks_ != nullptr);
    if (queue.tasks_) queue.tasks_->encode(encoder);
  }
  static Queue<T> decode(Decoder& decoder) {
    // One ring for each block of a message: see Decoder::shared_hold.
    const auto handle = decoder.read<std::uint32_t>();
    std::shared_ptr<void>& made = decoder.object(handle, &kRing);
    if (!made) made = std::make_shared<Ring>(Ring::open(decoder.take_handle(handle), schema_of<T>()));
    auto ring = std::static_pointer_cast<Ring>(made);
    std::shared_ptr<TaskLedger> tasks;
    if (shoal::decode<bool>(decoder)) tasks = std::make_shared<TaskLedger>(TaskLedger::decode(decoder));
    return Queue<T>(std::move(ring), std::move(tasks));
  }
};

}  // namespace shoal
