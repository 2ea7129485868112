#include <shoal/ipc/queue.h>

#include <fmt/format.h>

#include <string_view>

namespace shoal::detail {

void raise(RingStatus status, const char* operation) {
  switch (status) {
    case RingStatus::kClosed:
      throw QueueClosed(fmt::format("Queue::{}: the queue is closed", operation));
    case RingStatus::kTimedOut:
      throw TimeoutError(
          fmt::format("Queue::{}: timed out: {}", operation,
                      std::string_view(operation).starts_with("get") ? "no message came" : "the queue had no room"));
    case RingStatus::kPeersDied:
      throw PeerDied(fmt::format("Queue::{}: the other processes that held the queue are dead", operation));
    case RingStatus::kDone:
      break;
  }
  throw Error(fmt::format("Queue::{}: unexpected status {}", operation, int(status)));
}

Ring make_ring(const QueueOptions& options, std::uint64_t schema) {
  if (options.capacity == 0 || options.capacity >= RingLayout::kLargestCapacity)
    throw std::invalid_argument(fmt::format("queue capacity is {}: give 1 to {} messages",
                                            std::ptrdiff_t(options.capacity),  // as it was given: a negative one, too
                                            RingLayout::kLargestCapacity - 1));
  return Ring::create(std::uint32_t(options.capacity), schema, options.byte_capacity, options.name);
}

}  // namespace shoal::detail
