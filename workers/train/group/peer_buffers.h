// Blocks of the heap that ranks show to each other, and values that they send.
#pragma once

#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/ipc/heap.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace shoal {

class Rounds;

/// Lets every rank of a group read and write blocks of the others' tensors, safely: each rank that
/// touches a block has a hold on it, so a block outlives its owner's death for as long as others are at
/// it. Blocks come again and again (gradient buckets), so the holds are kept: registering a block is
/// one letter to each other rank, using it again is nothing at all.
///
/// The owner of a block decides. It has kSlots numbered slots; a letter says which slots are empty from
/// now on and which block is in which (the letter holds it). The others keep exactly what they were
/// told, so owner and others always agree, and a slot cannot mean a newer block at the same place: as
/// long as a block is in a slot, the others' holds keep it from being freed. What its owner has let go
/// of is dropped here too, one look at one slot per call. A block that comes for the first time is shown for one
/// collective only, after which all forget it without a letter: most never come again, and may be large.
///
/// Letters go through rings, whose messages survive or vanish with their sender as a whole. A rank reads
/// its letters whenever announcements say that there are some; it sends at most one a collective, so
/// an inbox never holds more than two of each sender. Values come through the inboxes as well: one of each sender at
/// most, since all have taken theirs before the next collective has begun. Owned by a Communicator; one thread.
class PeerBuffers {
 public:
  static constexpr std::uint32_t kSlots = 64;
  static constexpr std::uint64_t schema();

  PeerBuffers(Rounds& rounds, std::vector<Ring>& inboxes);

  /// The place where the others find a block from now on: in this slot, until drop() if it is there once.
  struct Place {
    std::uint32_t slot;
    bool once;
  };
  /// Sends letters if the block is in no slot.
  Place show(const Hold& hold);
  /// Looks at this many slots, in turn, for blocks that this process has let go of; sends letters if there are some.
  /// Call it or show() in a collective, not both: either sends one letter at most.
  void look_after(std::uint32_t slots);
  /// Empties the slot of a block that this rank, or another, has shown once. All ranks do, when all are done with it.
  void drop(int rank, std::uint32_t slot);
  /// How many letters were sent to each other rank so far, for the announcement.
  std::uint32_t letters_sent() const { return letters_sent_; }

  /// Reads this rank's inbox until `letters` letters of that rank were read.
  void read_letters(int from, std::uint32_t letters);
  /// Bytes [offset, offset + size) of a block that the rank shows in this slot. Throws Error if there is no such thing.
  std::byte* find(int from, std::uint32_t slot, std::uint64_t offset, std::uint64_t size) const;

  /// The beginning of a message that brings a value to a rank; the value is written behind it.
  void begin_value(Encoder& message) const;
  /// Throws Error, OutOfSharedMemory.
  void send_value(int to, Encoder& message);
  /// A value on this side; the decoder stands at its beginning.
  struct Value {
    std::unique_ptr<Received> message;  // what the decoder reads
    std::unique_ptr<Decoder> decoder;
  };
  /// The value that this rank has sent, after it has said that it did.
  Value take_value(int from);

  static std::uint32_t inbox_capacity(int world_size) { return std::uint32_t(world_size) * 3 + 2; }

 private:
  struct Shown {
    BlockOffset block;
    std::uint64_t last_use = 0;
  };
  struct Seen {
    Hold hold;
    std::byte* data = nullptr;
    std::size_t size = 0;
  };
  bool is_unused(std::uint32_t slot) const;
  void send(std::uint64_t emptied, std::uint32_t slot, const Hold* hold);
  void put(int to, Encoder& message);
  void read_message();

  Rounds& rounds_;
  std::vector<Ring>& inboxes_;
  std::vector<Shown> shown_{kSlots};
  std::vector<BlockOffset> shown_before_{
      kSlots};  // the last ones that were shown once; where one is now may be another
  std::uint32_t next_before_ = 0;
  std::uint32_t letters_sent_ = 0;
  std::uint64_t uses_ = 0;
  std::uint32_t next_to_check_ = 0;
  std::vector<std::vector<Seen>> seen_;      // [rank][slot]
  std::vector<std::uint32_t> letters_read_;  // by rank
  std::vector<Value> values_;                // by rank: come, and not taken yet
};

constexpr std::uint64_t PeerBuffers::schema() { return 0x73726574'74656c32; }  // "letters2"

}  // namespace shoal
