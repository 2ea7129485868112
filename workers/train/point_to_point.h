// Tensors and values from one rank to another.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <shoal/ipc/codec.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/train/communicator.h>

#include <chrono>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>

namespace shoal {

/// A send or a receive that has begun. Copies are the same one. It keeps its tensor; it goes on when the last copy is
/// gone, but only in other calls that send or receive, since nothing here runs by itself. Threads: any.
class Transfer {
 public:
  /// Whether it is over, well or not; never waits.
  bool is_done() const;
  /// Returns the other rank: of a receive from any, the one that has sent. Throws TimeoutError, which takes it back;
  /// PeerDied; what the receive says of a message that does not fit.
  int wait() const;
  /// The same, for this long instead of the communicator's timeout.
  int wait(std::chrono::nanoseconds timeout) const;
  /// What went wrong in one that is done; null if nothing has.
  std::exception_ptr failure() const;
  /// The other rank of one that is done.
  int peer() const;

 private:
  struct State;
  explicit Transfer(std::shared_ptr<State> state) : state_(std::move(state)) {}
  friend struct TransferMaker;
  std::shared_ptr<State> state_;
};

/// Sends a tensor to a rank, which receives it into one of the same size and element type. Messages from one rank with
/// one tag come in the order in which they were sent; a receive takes the first one of its rank and tag, whatever lies
/// before it. What is in the shared heap is copied once, by the receiver. Private data are copied twice, through 512 KiB
/// at most. send() returns when the tensor may be changed: at once for up to 512 KiB of private data and for 16 KiB in
/// the heap, otherwise when it was received. So two ranks that both send more and then both receive wait for each other:
/// one of them uses isend().
///
/// - If size or element type differ, the receiver gets std::invalid_argument, which says what came; the message stays,
///   and the sender waits on, until a receive fits.
/// - If the other rank dies or leaves, PeerDied, which names it; a receive gets what was sent before. Receiving from any
///   rank throws it when one dies. The rest of the group can still send and receive.
/// - TimeoutError, after Communicator::set_timeout: the message is taken back, and the group goes on.
/// - std::invalid_argument for this rank itself, a rank that does not exist, a negative tag, a tensor that is undefined,
///   sparse or on a device.
///
/// Threads: any, several at once, also beside collectives.
void send(Communicator& ranks, const at::Tensor& tensor, int to, int tag = 0);
/// tensor = what that rank has sent.
void recv(Communicator& ranks, const at::Tensor& tensor, int from, int tag = 0);
/// tensor = the first message with this tag that there is. Returns the rank that has sent it.
int recv_anysource(Communicator& ranks, const at::Tensor& tensor, int tag = 0);

/// Begin the same, and return at once. Nobody changes or reads the tensor before wait().
Transfer isend(Communicator& ranks, const at::Tensor& tensor, int to, int tag = 0);
Transfer irecv(Communicator& ranks, const at::Tensor& tensor, int from, int tag = 0);  ///< like recv()
Transfer irecv_anysource(Communicator& ranks, const at::Tensor& tensor, int tag = 0);  ///< like recv_anysource()

/// How send_object and recv_object reach the mailbox; see there.
namespace object_messages {
using Write = std::function<void(Encoder&)>;  ///< writes the value
using Read = std::function<void(Decoder&)>;   ///< reads it
/// Sends what `write` writes.
void send(Mailbox& mailbox, std::uint64_t schema, const std::string& type, const Write& write, int to, int tag);
inline constexpr int kAnyRank = std::numeric_limits<int>::min();  ///< in `from`: whoever sends
/// Returns the sender.
int receive(Mailbox& mailbox, std::uint64_t schema, const std::string& type, const Read& read, int from, int tag);
/// Sends the value.
template <class T>
void send(Mailbox& mailbox, const T& value, int to, int tag) {
  send(
      mailbox, schema_of<T>(), c10::demangle(typeid(T).name()), [&](Encoder& encoder) { encode<T>(encoder, value); },
      to, tag);
}
/// Returns the value and its sender.
template <class T>
std::pair<T, int> receive(Mailbox& mailbox, int from, int tag) {
  std::optional<T> value;
  const int sender = receive(
      mailbox, schema_of<T>(), c10::demangle(typeid(T).name()),
      [&](Decoder& decoder) {
        value.emplace(decode<T>(decoder));
        decoder.finish();
      },
      from, tag);
  return {std::move(*value), sender};
}
}  // namespace object_messages

/// Sends whatever has a Codec: the receiver gets a value of its own, as out of a Queue. Returns at once. What the codec
/// throws comes out, and nothing was sent. If the receiver asks for another type, or for a tensor, it gets
/// std::invalid_argument and the value stays; one that it cannot decode throws DecodeError and is gone.
template <class T>
void send_object(Communicator& ranks, const T& value, int to, int tag = 0) {
  object_messages::send<T>(ranks.mailbox(), value, to, tag);
}
/// Returns the value that the rank has sent.
template <class T>
T recv_object(Communicator& ranks, int from, int tag = 0) {
  return object_messages::receive<T>(ranks.mailbox(), from, tag).first;
}
/// Returns the first value with this tag that there is, and the rank that has sent it.
template <class T>
std::pair<T, int> recv_object_anysource(Communicator& ranks, int tag = 0) {
  return object_messages::receive<T>(ranks.mailbox(), object_messages::kAnyRank, tag);
}

}  // namespace shoal
