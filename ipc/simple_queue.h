// SimpleQueue<T>: put, get, empty, close.
#pragma once

#include <shoal/ipc/queue.h>

namespace shoal {

/// A queue with the fewest functions, like multiprocessing.SimpleQueue: for code ported from it, and for interfaces
/// that promise no more. A handle; threads and processes: any, at once; a death has the same effects as with Queue.
template <class T>
class SimpleQueue {
 public:
  SimpleQueue() = default;

  /// Waits for room (1024 messages fit). Throws QueueClosed, PeerDied, OutOfSharedMemory.
  void put(const T& value) { queue_.put(value); }
  /// Waits for a value. Throws QueueClosed (the queue is closed and empty), PeerDied, DecodeError.
  T get() { return queue_.get(); }
  bool empty() const { return queue_.empty(); }  ///< whether there was no value at some moment during the call
  void close() { queue_.close(); }               ///< as Queue::close()

 private:
  friend struct Codec<SimpleQueue>;
  explicit SimpleQueue(Queue<T> queue) : queue_(std::move(queue)) {}
  Queue<T> queue_;
};

template <class T>
struct Codec<SimpleQueue<T>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("shoal::SimpleQueue", schema_of<T, Outer...>());
  }
  static void encode(Encoder& encoder, const SimpleQueue<T>& queue) { shoal::encode(encoder, queue.queue_); }
  static SimpleQueue<T> decode(Decoder& decoder) { return SimpleQueue<T>(shoal::decode<Queue<T>>(decoder)); }
};

}  // namespace shoal
