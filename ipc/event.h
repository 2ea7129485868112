// A flag that processes wait for.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/sync/shared_part.h>
#include <shoal/ipc/codec.h>

#include <atomic>
#include <chrono>

namespace shoal {

/// How an event lies in shared memory, in a block of type kEvent. Pictured in docs/sync.md.
struct EventLayout {
  static constexpr std::uint32_t kMagic = 0x746e7665;  ///< "evnt"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr const char* kName = "event";
  static constexpr std::uint64_t kSet = 1;
  static constexpr std::uint64_t kOneTime = 2;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::atomic<std::uint32_t> crashes{0};  ///< processes that had a handle and died without leaving
  EventWord changed;
  std::atomic<std::uint64_t> state{0};  ///< bit 0: whether it is set. Bits 1..63: how often it was set
};

static_assert(sizeof(EventLayout) == 24);

/// A flag that any threads of any processes set, clear and wait for, like multiprocessing.Event. A handle: copies refer
/// to the same event, also in other processes. No process owns the event, so no death leaves it in disorder. A wait
/// throws PeerDied if a process that had the event crashed and only the caller's process still has it.
class Event {
 public:
  Event() : part_(SharedPart<EventLayout>::create(BlockType::kEvent)) {}

  bool is_set() const { return part_->state.load() & EventLayout::kSet; }  ///< at some moment during the call
  /// Sets the event. All present waiters go on, even if it is cleared at once.
  void set();
  /// Takes it back: who waits from now on waits for the next set().
  void clear();

  /// Waits until the event is set. Returns true.
  bool wait() { return wait_until(Deadline::never()); }
  /// Like wait(); returns false if the event was not set in time.
  bool wait(std::chrono::nanoseconds timeout) { return wait_until(Deadline::after(timeout)); }
  /// Waits until the event is set or `deadline` has come. Returns whether it is set.
  bool wait_until(Deadline deadline);

 private:
  friend struct Codec<Event>;
  explicit Event(SharedPart<EventLayout> part) : part_(std::move(part)) {}

  SharedPart<EventLayout> part_;
};

template <>
struct Codec<Event> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Event"); }
  static void encode(Encoder& encoder, const Event& event) { event.part_.encode(encoder); }
  static Event decode(Decoder& decoder) { return Event(SharedPart<EventLayout>::decode(decoder)); }
};

}  // namespace shoal
