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
  std::string name = {};          ///< what `shoal top` and `shoal trace` call it; its first 23 bytes
};

namespace detail {
[[noreturn]] void raise(RingStatus status, const char* operation);
Ring make_ring(const QueueOptions& options, std::uint64_t schema);
}  // namespace detail

template <class T>
class JoinableQueue;

/// First in, first out queue of values, as torch.multiprocessing.Queue. A handle: a copy is the same
/// queue, also in another process (queues are encodable). Threads and processes: any, at once.
///
/// Values are encoded in the caller's thread: an error surfaces at the call, the queue unchanged, and
/// the caller's value is never altered. A producer that dies leaves whole messages only; a consumer
/// that dies takes with it the message it had taken. A wait ends with PeerDied where processes that
/// held the queue died otherwise than by leaving and nobody but the caller is left. When the last
/// handle of all processes is gone, messages left in it are dropped and their memory is free.
template <class T>
class Queue {
 public:
  /// Throws std::invalid_argument for a capacity of 0 or too many.
  explicit Queue(const QueueOptions& options = {})
      : ring_(std::make_shared<Ring>(detail::make_ring(options, schema_of<T>()))) {}
  /// `capacity` in messages.
  explicit Queue(std::size_t capacity) : Queue(QueueOptions{.capacity = capacity}) {}

  /// Waits for room. Throws QueueClosed, PeerDied, OutOfSharedMemory, and what encoding throws.
  void put(const T& value) { check(put_until(value, Deadline::never()), "put"); }
  /// The same; TimeoutError after `timeout`.
  void put(const T& value, std::chrono::nanoseconds timeout) {
    check(put_until(value, Deadline::after(timeout)), "put");
  }
  /// False where there is no room now.
  bool try_put(const T& value) {
    RingStatus status = put_until(value, Deadline::now());
    if (status == RingStatus::kTimedOut) return false;
    check(status, "try_put");
    return true;
  }

  /// Waits for a value. Throws QueueClosed (closed and drained), PeerDied, DecodeError.
  T get() { return *get_until(Deadline::never(), "get", true); }
  /// The same; TimeoutError after `timeout`.
  T get(std::chrono::nanoseconds timeout) { return *get_until(Deadline::after(timeout), "get", true); }
  /// Nothing where there is no value now.
  std::optional<T> try_get() { return get_until(Deadline::now(), "try_get", false); }

  /// No value can be put from now on; getters get those that are in it and then QueueClosed.
  void close() { ring_->close(); }
  bool is_closed() const { return ring_->is_closed(); }       ///< whether close() was called, by whatever process
  std::size_t capacity() const { return ring_->capacity(); }  ///< messages that fit
  std::size_t byte_capacity() const { return ring_->byte_capacity(); }  ///< bytes that fit; 0: no limit
  std::string name() const { return ring_->name(); }                    ///< as given to the constructor
  /// Values in it at some moment during the call; as all three, out of date on return.
  std::size_t qsize() const { return ring_->size(); }
  bool empty() const { return qsize() == 0; }          ///< whether there is no value in it
  bool full() const { return qsize() >= capacity(); }  ///< whether there is no room for another message
  /// Bytes in it, for a queue with a byte capacity; otherwise 0.
  std::size_t bytes() const { return ring_->bytes(); }

  /// A value in shared memory to be filled in place and then put, which moves nothing: `loan({3, 4})` of
  /// a Queue<at::Tensor>, `loan(1 << 20)` of a Queue<SharedBytes>. One that is not put is just freed.
  template <class... Arguments>
    requires requires(Arguments&&... arguments) { Codec<T>::loan(std::forward<Arguments>(arguments)...); }
  T loan(Arguments&&... arguments) const {
    return Codec<T>::loan(std::forward<Arguments>(arguments)...);
  }
  /// The same with sizes in braces.
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
  Queue(Ring ring, std::shared_ptr<TaskLedger> tasks)
      : ring_(std::make_shared<Ring>(std::move(ring))), tasks_(std::move(tasks)) {}

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
  std::shared_ptr<TaskLedger> tasks_;  // of a JoinableQueue, also where it is used as a Queue
};

template <class T>
struct Codec<Queue<T>> {
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
    Ring ring = Ring::open(decoder.handle(decoder.read<std::uint32_t>()).share(), schema_of<T>());
    std::shared_ptr<TaskLedger> tasks;
    if (shoal::decode<bool>(decoder)) tasks = std::make_shared<TaskLedger>(TaskLedger::decode(decoder));
    return Queue<T>(std::move(ring), std::move(tasks));
  }
};

}  // namespace shoal
