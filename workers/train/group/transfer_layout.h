// How a message from rank to rank lies in shared memory, if it is too large for its sender to give it away at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// What a message of one rank to another begins with.
struct Envelope {
  enum Kind : std::uint32_t {
    kBytes = 0,    // the data follow
    kInPlace = 1,  // handle 0 is a TransferLayout, handle 1 the block that the data lie in
    kStaged = 2,   // handle 0 is a TransferLayout, through whose stages the data come
    kValue = 3,    // a ValueHead, the type's name, and a value that a codec has written
    kNote = 4,     // what ranks tell each other in a monitored barrier
    kOffered = 5   // of another host: the data come when they are asked for, by the number in `offset`
  };
  std::uint32_t kind;
  std::uint32_t from;
  std::int32_t tag;
  std::uint32_t type;    // c10::ScalarType; Undefined if only bytes matter
  std::uint64_t bytes;   // of data
  std::uint64_t offset;  // kInPlace: of the data in their block
};

static_assert(sizeof(Envelope) == 32);

struct ValueHead {
  std::uint64_t schema;
  std::uint64_t name_length;
};

/// A block that sender and receiver share while a message is on its way. Each word is changed by one side, but `state`:
///
///   | from     | to         | by whom                                                              |
///   |----------|------------|----------------------------------------------------------------------|
///   | kOffered | kTaken     | the receiver, when it has a place for the data: by CAS               |
///   | kOffered | kWithdrawn | the sender, which has waited too long: by CAS                        |
///   | kTaken   | kDone      | the receiver, when it has all                                        |
///   | kTaken   | kBroken    | whichever side gives up while chunks are on their way: by CAS        |
struct TransferLayout {
  enum State : std::uint32_t { kOffered = 0, kTaken = 1, kDone = 2, kWithdrawn = 3, kBroken = 4 };
  static constexpr std::uint32_t kStages = 2;
  /// The receiver copies one chunk while the sender writes the next: both stay in the caches.
  static constexpr std::uint64_t kChunkBytes = 256u << 10;

  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> filled;   // chunks that the sender has written
  std::atomic<std::uint32_t> emptied;  // chunks that the receiver has copied
  std::uint32_t reserved[13];

  std::byte* stage(std::uint32_t chunk) {
    return reinterpret_cast<std::byte*>(this) + sizeof *this + chunk % kStages * kChunkBytes;
  }
};

static_assert(sizeof(TransferLayout) == 64);

}  // namespace shoal
