// JoinableQueue<T>: a queue of tasks, and a wait for their end.
#pragma once

#include <shoal/ipc/queue.h>

namespace shoal {

/// A Queue whose values are tasks, like multiprocessing.JoinableQueue. A consumer calls task_done() after each task
/// that it got, and join() waits until all tasks that were put are done. A handle; threads and processes: any, at once.
/// Tasks that a process took and died with are not done: join() throws PeerDied once, and then no longer counts them.
template <class T>
class JoinableQueue : public Queue<T> {
 public:
  /// A queue with these options, as for a Queue.
  explicit JoinableQueue(const QueueOptions& options = {}) : Queue<T>(options) {
    this->tasks_ = std::make_shared<TaskLedger>(this->ring_->hold().block());
  }
  /// A queue with room for `capacity` messages.
  explicit JoinableQueue(std::size_t capacity) : JoinableQueue(QueueOptions{.capacity = capacity}) {}

  /// Says that one task that was got is done. Throws std::logic_error if called more often than put().
  void task_done() { this->tasks_->done(); }
  /// Waits until every task is done. Throws PeerDied if some were lost with the process that had them.
  void join() { this->tasks_->wait_all_done(*this->ring_, Deadline::never()); }
  /// Like join(); returns false after `timeout`.
  bool join(std::chrono::nanoseconds timeout) {
    return this->tasks_->wait_all_done(*this->ring_, Deadline::after(timeout));
  }
  /// The number of tasks put and not done.
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
