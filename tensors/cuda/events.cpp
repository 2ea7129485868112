#include <shoal/internal/tensors/cuda/events.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/tensors/cuda/holders.h>
#include <shoal/internal/tensors/cuda/make_layout.h>
#include <shoal/internal/tensors/driver/captured_stream.h>
#include <shoal/internal/tensors/driver/device_memory.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace shoal {
namespace {

/// An event that other processes wait for is no part of a graph: recording or awaiting it would break the capture, and
/// the graph would not do it again when it is replayed.
void refuse_capture(c10::Stream stream, const char* what) {
  if (is_captured(stream))
    throw std::invalid_argument(
        fmt::format("a tensor on {} cannot be {} while this thread's stream is captured into a graph: do it before "
                    "the capture begins or after it ends, or on another stream",
                    stream.device().str(), what));
}

}  // namespace

SentEvents::Event SentEvents::make(c10::Device device) {
  DeviceMemory& memory = device_memory(device.type());
  Event made{nullptr, allocate_shared(sizeof(DeviceEventLayout)), 0, next_number_++};
  auto* layout = make_layout<DeviceEventLayout>(made.block.data(), device);
  layout->number = made.number;
  made.event = memory.create_event(device.index());
  try {
    const EventHandle handle = memory.handle_of_event(made.event, device.index());
    std::memcpy(layout->handle, handle.bytes.data(), sizeof layout->handle);
  } catch (...) {
    memory.destroy_event(made.event, device.index());
    throw;
  }
  return made;
}

/// The event to be recorded on this stream, moved to the pool's end; null if there is none.
SentEvents::Event* SentEvents::choose(Pool& pool, c10::Stream stream) {
  auto use = [&](Pool::iterator chosen) {
    Event event = std::move(*chosen);
    pool.erase(chosen);
    pool.push_back(std::move(event));
    return &pool.back();
  };
  if (!pool.empty() && is_only_hold(pool.front().block)) return use(pool.begin());
  if (pool.size() < kMostEvents) return &pool.emplace_back(make(stream.device()));
  auto free = std::ranges::find_if(pool, [](const Event& event) { return is_only_hold(event.block); });
  if (free != pool.end()) return use(free);
  auto same =
      std::ranges::find_if(pool.rbegin(), pool.rend(), [&](const Event& event) { return event.stream == stream.id(); });
  return same == pool.rend() ? nullptr : use(std::prev(same.base()));
}

std::optional<std::uint32_t> SentEvents::record(Encoder& message, c10::Device device) {
  c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  refuse_capture(stream, "sent");
  std::lock_guard lock(mutex_);
  // The tensors of one message share an event: recorded once more, it says more.
  const auto added = message.find_added(this);
  Pool& pool = pools_[{device.type(), device.index()}];
  auto in_message = [&](const Event& event) {
    return added && event.block.block() == message.handles()[*added].block && event.stream == stream.id();
  };
  auto known = std::ranges::find_if(pool, in_message);
  Event* event = known != pool.end() ? &*known : choose(pool, stream);
  if (!event) {
    guard.synchronizeStream(stream);
    return std::nullopt;
  }
  guard.record(&event->event, stream, device.index(), c10::EventFlag::PYTORCH_DEFAULT);
  event->stream = stream.id();
  const std::uint32_t handle = message.add(event->block);
  if (!added) message.note_added(this, handle, {});
  return handle;
}

void* SentEvents::find(std::uint64_t number) const {
  std::lock_guard lock(mutex_);
  for (auto& [device, pool] : pools_)
    for (const Event& event : pool)
      if (event.number == number) return event.event;
  return nullptr;
}

void SentEvents::collect() {
  std::lock_guard lock(mutex_);
  for (auto& [device, pool] : pools_)
    std::erase_if(pool, [&](Event& event) {
      if (!is_only_hold(event.block)) return false;
      device_memory(device.first).destroy_event(event.event, device.second);
      return true;
    });
}

std::size_t SentEvents::live() const {
  std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (auto& [device, pool] : pools_) count += pool.size();
  return count;
}

void ReceivedEvents::wait(const Hold& block, c10::Device device, const SentEvents& own) {
  if (block.size() != sizeof(DeviceEventLayout)) throw DecodeError("this block of shared memory is no device's event");
  DeviceEventLayout layout;
  std::memcpy(&layout, block.data(), sizeof layout);
  if (layout.magic != DeviceEventLayout::kMagic || layout.version != DeviceEventLayout::kVersion ||
      layout.device_type != std::uint8_t(device.type()))
    throw DecodeError("this block of shared memory is no device's event of this version");
  c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  refuse_capture(stream, "received");
  Session& session = Session::current();
  const ProcessTag producer = ProcessTag::from_word(layout.producer);
  if (producer == session.self()) {
    void* event = own.find(layout.number);
    if (!event) throw DecodeError("an event of this process that it never made");
    return guard.block(event, stream);
  }
  // What a dead process had queued is over, and its event with it, opened or not.
  if (!session.is_alive(producer)) return;
  std::lock_guard lock(mutex_);
  auto found = opened_.find({layout.producer, layout.number});
  if (found == opened_.end()) {
    if (opened_.size() >= kMostOpen) close_all();
    DeviceMemory& memory = device_memory(device.type());
    DeviceUuid uuid;
    std::memcpy(uuid.bytes.data(), layout.uuid, sizeof layout.uuid);
    const c10::Device home(device.type(), c10::DeviceIndex(memory.index_of(uuid)));
    EventHandle handle;
    std::memcpy(handle.bytes.data(), layout.handle, sizeof layout.handle);
    found = opened_.try_emplace({layout.producer, layout.number}, Opened{memory.open_event(handle, home.index()), home})
                .first;
  }
  guard.block(found->second.event, stream);
}

void ReceivedEvents::close_all() {
  for (auto& [name, opened] : opened_)
    device_memory(opened.device.type()).destroy_event(opened.event, opened.device.index());
  opened_.clear();
}

void ReceivedEvents::collect() {
  std::lock_guard lock(mutex_);
  close_all();
}

}  // namespace shoal
