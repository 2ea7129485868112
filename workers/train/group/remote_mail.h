// Messages to and from ranks that share no memory with this one, as a Mailbox uses them.
#pragma once

#include <shoal/internal/ipc/codec/encoder.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace shoal {

/// The way to the ranks of other hosts. It runs by itself, and tells the Mailbox (deliver, sent, pulled, withdrawn, look)
/// without a lock of its own; the Mailbox calls it with its lock held. Threads: any.
class RemoteMail {
 public:
  enum class Gone { no, died, left };

  virtual ~RemoteMail() = default;

  /// Sends a message with what it refers to, which is copied before this returns. Throws std::invalid_argument if it refers
  /// to anything but bytes of the heap.
  virtual void send(int to, Encoder& message) = 0;
  /// Sends an envelope, and its data when the receiver asks for them: then Mailbox::sent() is called with the number.
  virtual void offer(int to, std::uint64_t number, Encoder& envelope, const std::byte* data, std::uint64_t bytes) = 0;
  /// Takes an offer back. False if the data are on their way: sent() will be called, or the rank is gone.
  virtual bool withdraw(std::uint64_t number) = 0;
  /// Asks for the data of an offer: Mailbox::pulled() is called when they are there, withdrawn() if there are none any more.
  virtual void pull(int from, std::uint64_t number, std::byte* data, std::uint64_t bytes) = 0;
  /// From now on nothing is written to the place that pull() was given.
  virtual void cancel(int from, std::uint64_t number) = 0;

  /// Sees to it that the end of this rank is noticed.
  virtual void watch(int rank) = 0;
  virtual Gone state_of(int rank) const = 0;
  /// "rank 3 (host b, process 77) left the group": of one that is gone.
  virtual std::string end_of(int rank) const = 0;

  /// Sends what is not sent yet, unless `at_once`, says that this rank leaves, and ends its thread. The Mailbox's lock is not
  /// held.
  virtual void close(bool at_once) noexcept = 0;
};

}  // namespace shoal
