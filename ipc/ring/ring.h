// A bounded queue of messages in the shared heap: this process's view of it.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/codec/decoder.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/ipc/ring/layout.h>
#include <shoal/internal/ipc/ring/look_ahead.h>
#include <shoal/ipc/heap.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

class TaskLedger;
enum class TraceKind : std::uint32_t;

enum class RingStatus { kDone, kClosed, kTimedOut, kPeersDied };

/// A message taken out of a ring: its bytes and handles, owned by the taker.
class Received {
 public:
  Decoder decoder() &&;  ///< valid while this object lives

 private:
  friend class Ring;
  std::byte inline_[RingCell::kInlineBytes];
  Hold block_;  // the message's block if it did not fit into its cell
  std::size_t size_ = 0;
  Decoder::Handles handles_;
};

/// A queue of messages between any number of processes: first in, first out. A Ring object is a handle; share() gives
/// another handle of the same ring. Threads and processes: any, at once. A process that dies while it writes leaves no
/// message. A process that dies while it reads takes that message with it. Nobody waits for either. When the last
/// handle is gone, the messages left are dropped.
class Ring {
 public:
  /// `schema` names the messages' type; it is checked when a handle is received. `byte_capacity` bounds the messages'
  /// bytes and the blocks that travel with them, 0 for no bound; a message that is larger than it goes in when the ring
  /// is empty. `name` is the ring's name in `shoal top` and `shoal trace`; its first 23 bytes are kept.
  static Ring create(std::uint32_t capacity, std::uint64_t schema, std::uint64_t byte_capacity = 0,
                     std::string_view name = {});
  /// Throws DecodeError if the block is no ring of this schema.
  static Ring open(Hold hold, std::uint64_t schema);

  const Hold& hold() const { return hold_; }
  Ring share() const { return Ring(hold_.share()); }

  /// `tasks`, if given, counts the message while the cell is this process's alone.
  RingStatus put(Encoder& message, Deadline deadline, TaskLedger* tasks = nullptr);
  RingStatus get(Received& message, Deadline deadline, TaskLedger* tasks = nullptr);
  /// Waits until there is a message, or there will never be one: kDone in both cases.
  RingStatus wait_for_message(Deadline deadline);
  /// Whether wait_for_message() would return at once.
  bool is_ready();
  void close();

  bool is_closed() const;
  std::uint32_t capacity() const;
  std::uint64_t byte_capacity() const;
  std::string name() const;
  std::uint32_t size() const;  ///< messages in it, at some moment during the call
  /// Bytes in it, at some moment during the call. 0 if there is no byte capacity.
  std::uint64_t bytes() const;
  /// Counts the messages in it, or being put or taken at this moment, by a look at each cell.
  std::uint32_t messages_by_cell() const;
  /// A number that changes with every message that is put or taken.
  std::uint64_t moves() const;
  /// The word that changes when a message is put, for waiting on several rings.
  EventWord& message_event() const { return layout().not_empty; }

  /// Closes a ring that the caller keeps alive somehow.
  static void close(Heap& heap, BlockOffset block) noexcept;
  /// Empties a ring that nobody holds any more. Repeatable.
  static void drain(Heap& heap, BlockOffset block) noexcept;
  /// Repairs the cells that a dead process was working on. The caller has a hold on the ring, or relies on one of the
  /// dead process's, which it alone may give up.
  static void recover(Heap& heap, BlockOffset block, ProcessTag dead);
  struct Survey {
    std::vector<HoldRef> message_holds;  // of messages in it, or being taken out, whoever has them by now
    bool in_work = false;                // whether the process asked for has claimed or taken a cell
  };
  /// Looks through the block, if it is a ring, without a hold on it. It writes nothing, and describes one moment at
  /// which the block was this ring. Returns nothing if it is no ring.
  static Survey survey(const Heap& heap, BlockOffset block, ProcessTag process);

 private:
  explicit Ring(Hold hold);
  RingLayout& layout() const { return *layout_; }
  enum class Side { kPut, kGet };
  void note_message(TraceKind kind, std::uint64_t since, RingTicket ticket, std::uint64_t bytes) const;
  static bool streams(Side side);
  template <class Attempt>
  RingStatus wait(Side side, Deadline deadline, Attempt&& attempt);
  template <class Attempt>
  RingStatus wait_on(Side side, Deadline deadline, bool stream, Attempt&& attempt);
  bool admits(RingTicket ticket, std::uint64_t charge, CellState& state);
  void write(RingTicket ticket, Encoder& message, const HoldRef& spilled, std::uint64_t charge);
  bool take_out(RingTicket ticket, Received& message, TaskLedger* tasks);
  static bool is_work_of_another(CellState state);
  bool recover_blocking_cell(CellState state);

  Hold hold_;
  RingLayout* layout_ = nullptr;
  PutAhead ahead_of_put_;
  GetAhead ahead_of_get_;
};

}  // namespace shoal
