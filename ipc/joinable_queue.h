// JoinableQueue<T>: a queue of tasks whose end can be waited for.
#pragma once

#include <shoal/ipc/queue.h>

namespace shoal {

/// A Queue whose values are tasks, as multiprocessing.JoinableQueue: whoever got one says task_done() when
/// it is done with it, and join() waits until that was said for all that were put. A handle; threads and
/// processes: any, at once. Tasks that a process took and died with are not done: join() ends with
/// PeerDied, once, and they are no longer counted.
template <class T>
class JoinableQueue : public Queue<T> {
 public:
  /// As Queue's.
  explicit JoinableQueue(const QueueOptions& options = {}) : Queue<T>(options) {
    this->tasks_ = std::make_shared<TaskLedger>(this->ring_->hold().block());
  }
  /// As Queue's: `capacity` in messages.
  explicit JoinableQueue(std::size_t capacity) : JoinableQueue(QueueOptions{.capacity = capacity}) {}

  /// A task that was got is done. Throws std::logic_error where it is called more often than put.
  void task_done() { this->tasks_->done(); }
  /// Waits until every task is done. Throws PeerDied where some were lost with the process that had them.
  void join() { this->tasks_->wait_all_done(*this->ring_, Deadline::never()); }
  /// The same; false after `timeout`.
  bool join(std::chrono::nanoseconds timeout) {
    return this->tasks_->wait_all_done(*this->ring_, Deadline::after(timeout));
  }
  /// Tasks put and not done.
  std::size_t unfinished() const { return this->tasks_->unfinished(); }

 private:
  friend struct Codec<JoinableQueue>;
  explicit JoinableQueue(Queue<T> queue) : Queue<T>(std::move(queue)) {
    if (!this->tasks_) throw DecodeError("a queue without tasks where a JoinableQueue was expected");
  }
};

template <class T>
struct Codec<JoinableQueue<T>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("shoal::JoinableQueue", schema_of<T, Outer...>());
  }
  static void encode(Encoder& encoder, const JoinableQueue<T>& queue) { Codec<Queue<T>>::encode(encoder, queue); }
  static JoinableQueue<T> decode(Decoder& decoder) { return JoinableQueue<T>(Codec<Queue<T>>::decode(decoder)); }
};

}  // namespace shoal
