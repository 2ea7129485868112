// Messages from one rank to another: what was sent, what is awaited, and what is on its way.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/internal/workers/train/group/remote_mail.h>
#include <shoal/internal/workers/train/group/transfer_layout.h>
#include <shoal/workers/train/communicator.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// One rank's messages to and from the others of its group. Every rank has a ring that the others put messages into; its
/// Mailbox takes them out and gives them to the receives that were posted, by sender and tag, first come, first served.
///
/// How data go: up to kEagerBytes with the message; larger ones from the heap in place, which the receiver copies once,
/// while the sender waits; larger private ones through two stages that both sides work at. So a send of up to two
/// chunks is done when it returns, a larger one when the receiver has the data.
///
/// Nothing here runs by itself: messages move in calls of this object, whosever they are, and while this process waits for
/// something else of a group's (mailboxes.h). What others have to do for a wait (a message put, a chunk copied) they tell by
/// the event of the ring, on which all waits of this rank sleep.
///
/// Threads: any, several at once; the lock is not held in sleep. Not usable in a forked child. If the process at the
/// other end dies or leaves, its operations end with PeerDied, but a receive gets what was sent before. A time-out ends
/// its operation alone: what was not begun is taken back, and the other side does not notice.
///
/// Ranks of other hosts are reached by a RemoteMail (connect()). Their messages are matched here like all others, so a
/// receive from any rank takes from either.
class Mailbox {
 public:
  /// In `from`: whoever sends.
  static constexpr int kAnySource = std::numeric_limits<int>::min();
  static constexpr std::size_t kEagerBytes = 16u << 10;
  /// To another host: up to here data go with the message.
  static constexpr std::size_t kEagerRemoteBytes = 512u << 10;
  static constexpr std::uint32_t kCapacity = 64;
  static constexpr std::uint64_t schema() { return 0x6d61696c'00000001; }  // "mail"

  Mailbox(std::shared_ptr<ShmGroup::Parts> parts, GroupLayout& layout, int rank);
  Mailbox(const Mailbox&) = delete;

  /// Makes this the mailbox of a rank of a larger group, before anything is sent. `local_of`: which rank of the ShmGroup a
  /// rank of that group is, -1 for those of other hosts, which are reached by `remote`. All ranks are that group's from now
  /// on.
  void connect(std::shared_ptr<RemoteMail> remote, std::vector<int> local_of, int me);
  /// Ends everything, now and later, with this exception: the larger group is broken.
  void break_off(std::exception_ptr failure);

  /// A message that has come.
  struct Message {
    std::unique_ptr<Received> memory;  // what the decoder reads
    std::unique_ptr<Decoder> decoder;  // behind the envelope, and what a value begins with
    Envelope envelope;
    std::uint64_t schema = 0;         // of a value
    std::string type_name;            // likewise
    std::vector<std::byte> copied{};  // what the decoder reads, of a message from another host
    std::exception_ptr failure{};     // why what it refers to could not be brought here
  };

  /// One send or receive. Its owner keeps a share of it; this object, too, until it is done.
  struct Operation {
    /// Called under the lock when it has gone well, before it counts as done.
    std::function<void()> at_end;
    // The mailbox's:
    bool sends = false;
    std::uint32_t kind = Envelope::kBytes;  // a receive: kBytes for whatever brings bytes
    int peer = kAnySource;
    int tag = 0;
    std::uint32_t type = 0;
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::string type_name;  // a receive of a value
    std::uint64_t schema = 0;
    std::unique_ptr<Encoder> message;  // a send that has found no room yet
    Message value;                     // a receive of a value
    Hold transfer;                     // of the TransferLayout, once there is one
    bool pulls = false;                // a receive that has begun with the stages, or waits for what was offered
    std::uint64_t remote = 0;          // the number of an offer to, or from, another host
    bool from_any = false;             // a receive that asked for no rank
    bool done = false;
    std::exception_ptr failure;
  };
  using Handle = std::shared_ptr<Operation>;

  /// Each throws std::invalid_argument for a rank or a tag that is none. `at_end` is called when the data are there.
  Handle send(const Region& data, int to, int tag, std::uint32_t type, std::function<void()> at_end = {});
  Handle receive(std::byte* data, std::uint64_t bytes, int from, int tag, std::uint32_t type,
                 std::function<void()> at_end = {});
  /// `write` writes the value; what it throws comes out, and nothing was sent.
  Handle send_value(std::uint64_t schema, const std::string& type_name, const std::function<void(Encoder&)>& write,
                    int to, int tag);
  Handle receive_value(std::uint64_t schema, const std::string& type_name, int from, int tag);
  /// Notes have tags of their own.
  Handle send_note(const std::string& text, int to, int tag);
  Handle receive_note(int from, int tag);

  /// Whether it is over, well or not; moves what can be moved.
  bool is_done(const Handle& operation);
  /// Waits until it is over, well or not. False if it is not by then; it goes on.
  bool wait_until_done(const Handle& operation, Deadline deadline);
  /// Throws what went wrong; a time-out takes the operation back. Returns the other rank.
  int wait(const Handle& operation, std::chrono::nanoseconds timeout);
  int wait(const Handle& operation) { return wait(operation, timeout()); }
  /// What went wrong in an operation that is done; null if nothing has.
  std::exception_ptr failure_of(const Handle& operation) const;
  /// The other rank of an operation that is done.
  int peer_of(const Handle& operation) const;
  /// The message of a receive of a value or a note that is done; once.
  Message take_message(const Handle& operation);

  /// Takes back an operation that nobody waits for any more.
  void forget(const Handle& operation);
  /// The n-th monitored barrier of this rank is the n-th of all others.
  int next_monitored_barrier();

  /// What is under way, from nothing to much.
  enum class Motion { none, under_way, moved };
  /// Moves what can be moved, unless another thread is at it: for waits that are not this object's (mailboxes.h).
  Motion move() noexcept;

  // What RemoteMail tells.
  void deliver(int from, Message message);         ///< a message has come; its decoder is at the beginning
  void sent(std::uint64_t number);                 ///< all data of an offer are gone
  void pulled(int from, std::uint64_t number);     ///< all data of an offer are there
  void withdrawn(int from, std::uint64_t number);  ///< its sender has taken it back
  void look();                                     ///< a rank is gone

  void set_timeout(std::chrono::nanoseconds timeout);
  std::chrono::nanoseconds timeout() const;
  /// Takes back what was not begun. Everything ends with an Error, now and later: the rank leaves.
  void leave() noexcept;

 private:
  using Gone = RemoteMail::Gone;

  bool is_remote(int rank) const { return remote_ && rank >= 0 && local_of_[std::size_t(rank)] < 0; }
  int local_of(int rank) const { return remote_ ? local_of_[std::size_t(rank)] : rank; }
  Ring& inbox(int rank) const { return parts_->mail[std::size_t(local_of(rank))]; }
  TransferLayout& layout_of(const Operation& operation) const {
    return *reinterpret_cast<TransferLayout*>(operation.transfer.data());
  }
  void check_usable() const;
  void check_peer(const char* what, int rank, int tag) const;
  Handle start_send(Handle operation);
  Handle start_receive(Handle operation, int from);
  /// Moves what can be moved, under the lock. Returns whether anything was done.
  bool progress();
  bool fetch();
  bool match(Operation& receive);
  bool accept(Operation& receive, Message& message);
  bool pull(Operation& receive);
  bool push(Operation& send);
  void push_remote(Operation& send);
  void end(Operation& operation, std::exception_ptr failure = {});
  void tell(int rank) const {
    if (!is_remote(rank)) inbox(rank).message_event().notify_all();
  }
  void close_remote(bool at_once, const std::exception_ptr& failure);
  static void read_head(Message& message);
  std::uint32_t sender_for(int to) const;
  Operation* find_remote(bool sends, int peer, std::uint64_t number);
  Gone state_of(int rank) const;
  void check_alive(Operation& operation);
  std::chrono::milliseconds longest_nap(std::chrono::milliseconds& retry) const;
  /// Whether the operation could be taken back.
  bool take_back(Operation& operation);
  bool sleep_until_done(std::unique_lock<std::mutex>& lock, Operation& operation, Deadline deadline);
  std::exception_ptr death_of(const Operation& operation, int rank, Gone gone) const;
  std::string describe(const Operation& operation) const;
  static std::string describe(const Message& message);

  std::shared_ptr<ShmGroup::Parts> parts_;
  GroupLayout& layout_;
  int me_, world_;
  const int my_local_;                   // rank in the ShmGroup
  std::shared_ptr<RemoteMail> remote_;   // null: all ranks share memory
  std::vector<int> local_of_, rank_of_;  // with it: by rank, and by rank in the ShmGroup
  std::uint64_t offers_ = 0;
  std::exception_ptr broken_;
  std::uint32_t fork_count_;
  mutable std::mutex mutex_;
  std::atomic<std::chrono::nanoseconds> timeout_{std::chrono::minutes(30)};
  std::deque<Message> arrived_;     // nobody has asked for them yet
  std::vector<Handle> operations_;  // not done, in the order in which they were begun
  int monitored_barriers_ = 0;
  int sleepers_ = 0;  // threads asleep in wait()
  bool left_ = false;
};

}  // namespace shoal
