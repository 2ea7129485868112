// Queue<T>: values between any number of processes.
#pragma once

#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/ring.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

namespace shoal {

namespace queue_errors {
[[noreturn]] void raise(RingStatus status, const char* operation);
std::uint32_t checked_capacity(std::size_t capacity);
}  // namespace queue_errors

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
  /// `capacity` in messages, 1 to 16,777,215; std::invalid_argument otherwise.
  explicit Queue(std::size_t capacity)
      : ring_(std::make_shared<Ring>(Ring::create(queue_errors::checked_capacity(capacity), schema_of<T>()))) {}

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
  bool is_closed() const { return ring_->is_closed(); }
  std::size_t capacity() const { return ring_->capacity(); }
  /// Values in it at some moment during the call; as all three, out of date on return.
  std::size_t qsize() const { return ring_->size(); }
  bool empty() const { return qsize() == 0; }
  bool full() const { return qsize() >= capacity(); }

 private:
  friend struct Codec<Queue>;
  explicit Queue(Ring ring) : ring_(std::make_shared<Ring>(std::move(ring))) {}

  static void check(RingStatus status, const char* operation) {
    if (status != RingStatus::kDone) queue_errors::raise(status, operation);
  }
  RingStatus put_until(const T& value, Deadline deadline) {
    Encoder encoder;
    encode(encoder, value);
    return ring_->put(encoder, deadline);
  }
  std::optional<T> get_until(Deadline deadline, const char* operation, bool must) {
    Received message;
    RingStatus status = ring_->get(message, deadline);
    if (status == RingStatus::kTimedOut && !must) return std::nullopt;
    check(status, operation);
    Decoder decoder = std::move(message).decoder();
    std::optional<T> value(decode<T>(decoder));
    decoder.finish();
    return value;
  }

  std::shared_ptr<Ring> ring_;
};

template <class T>
struct Codec<Queue<T>> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Queue", schema_of<T>()); }
  static void encode(Encoder& encoder, const Queue<T>& queue) { encoder.write(encoder.add(queue.ring_->hold())); }
  static Queue<T> decode(Decoder& decoder) {
    return Queue<T>(Ring::open(decoder.handle(decoder.read<std::uint32_t>()).share(), schema_of<T>()));
  }
};

}  // namespace shoal
