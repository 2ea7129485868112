#include <shoal/internal/runtime/call/channel.h>

#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/ipc/error.h>

namespace shoal {
namespace {

/// By it those that look on tell it from the user's queues.
constexpr const char* kName = "shoal: channel";
constexpr std::uint64_t kSchema = schema_hash("shoal::Channel", schema_of<StartHeader>(), schema_of<FailureReport>());

}  // namespace

Channel Channel::create() { return Channel(Ring::create(2, kSchema, 0, kName)); }

Channel Channel::adopt(const HoldRef& lent, ProcessTag parent) {
  return Channel(Ring::open(adopt_lent(lent, parent), kSchema));
}

void Channel::send(Encoder& message) {
  if (ring_.put(message, Deadline::now()) != RingStatus::kDone)
    throw Error("the channel between parent and child is full");
}

std::optional<Received> Channel::receive() {
  std::optional<Received> message(std::in_place);
  if (ring_.get(*message, Deadline::now()) != RingStatus::kDone) return std::nullopt;
  return message;
}

}  // namespace shoal
