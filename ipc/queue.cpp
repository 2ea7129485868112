#include <fmt/format.h>
#include <shoal/ipc/queue.h>

namespace shoal::queue_errors {

void raise(RingStatus status, const char* operation) {
  switch (status) {
    case RingStatus::kClosed:
      throw QueueClosed(fmt::format("Queue::{}: the queue is closed", operation));
    case RingStatus::kTimedOut:
      throw TimeoutError(fmt::format("Queue::{}: timed out", operation));
    case RingStatus::kPeersDied:
      throw PeerDied(fmt::format("Queue::{}: the other processes that held the queue are dead", operation));
    case RingStatus::kDone:
      break;
  }
  throw Error(fmt::format("Queue::{}: unexpected status {}", operation, int(status)));
}

std::uint32_t checked_capacity(std::size_t capacity) {
  if (capacity == 0 || capacity >= RingLayout::kLargestCapacity)
    throw std::invalid_argument(
        fmt::format("queue capacity is {}: give 1 to {} messages", capacity, RingLayout::kLargestCapacity - 1));
  return std::uint32_t(capacity);
}

}  // namespace shoal::queue_errors
