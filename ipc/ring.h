// A bounded queue of messages in the shared heap: this process's view of it.
#pragma once

#include <shoal/ipc/codec/decoder.h>
#include <shoal/ipc/codec/encoder.h>
#include <shoal/ipc/deadline.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/ring/layout.h>

#include <cstdint>
#include <functional>

namespace shoal {

enum class RingStatus { kDone, kClosed, kTimedOut, kPeersDied };

/// A message taken out of a ring: its bytes and handles, owned by the taker.
class Received {
 public:
  Decoder decoder() &&;  ///< valid while this object lives

 private:
  friend class Ring;
  std::byte inline_[RingCell::kInlineBytes];
  Hold block_;  // where the message did not fit into its cell
  std::uint32_t size_ = 0;
  std::size_t offset_ = 0;  // of the bytes, in the block
  Decoder::Handles handles_;
};

/// Queue of messages between any number of processes: first in, first out. A Ring object is a handle;
/// share() gives another to the same ring. Threads and processes: any, at once. A process that dies
/// while it writes leaves no message; one that dies while it reads takes that message with it; nobody
/// waits for either. When the last handle is gone the messages left are dropped.
class Ring {
 public:
  /// `schema` says which type the messages are of; checked where a handle is received.
  static Ring create(std::uint32_t capacity, std::uint64_t schema);
  /// Throws DecodeError where the block is no ring of this schema.
  static Ring open(Hold hold, std::uint64_t schema);

  const Hold& hold() const { return hold_; }
  Ring share() const { return Ring(hold_.share()); }

  RingStatus put(Encoder& message, Deadline deadline);
  RingStatus get(Received& message, Deadline deadline);
  void close();

  bool is_closed() const;
  std::uint32_t capacity() const;
  std::uint32_t size() const;  ///< messages in it, at some moment during the call

  /// Empties a ring that nobody holds any more. Repeatable.
  static void drain(Heap& heap, BlockOffset block) noexcept;
  /// Repairs the cells that a dead process was working on.
  static void recover(Heap& heap, BlockOffset block, ProcessTag dead);
  /// Calls visit for each hold that belongs to a message in the ring, or to one being taken out.
  static void for_each_message_hold(Heap& heap, BlockOffset block, const std::function<void(const HoldRef&)>& visit);

 private:
  explicit Ring(Hold hold);
  RingLayout& layout() const { return *layout_; }
  enum class Side { kPut, kGet };
  RingStatus claim(Side side, Deadline deadline, RingTicket& ticket);
  void write(RingCell& cell, Encoder& message, const HoldRef& spilled);
  bool take_out(RingTicket ticket, Received& message);
  bool peers_died();

  Hold hold_;
  RingLayout* layout_ = nullptr;
};

}  // namespace shoal
