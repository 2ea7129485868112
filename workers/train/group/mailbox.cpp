#include <shoal/internal/workers/train/group/mailbox.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/spin.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/process/liveness_watch.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/trace/sleep_note.h>
#include <shoal/internal/workers/train/group/mailboxes.h>
#include <shoal/internal/workers/train/group/time_text.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

namespace shoal {
namespace {

std::uint32_t chunks_of(std::uint64_t bytes) {
  return std::uint32_t((bytes + TransferLayout::kChunkBytes - 1) / TransferLayout::kChunkBytes);
}

std::uint64_t chunk_size(std::uint64_t bytes, std::uint32_t chunk) {
  return std::min<std::uint64_t>(TransferLayout::kChunkBytes, bytes - chunk * TransferLayout::kChunkBytes);
}

std::string describe_bytes(std::uint64_t bytes, std::uint32_t type) {
  if (type >= std::uint32_t(c10::ScalarType::Undefined)) return fmt::format("{} bytes", bytes);
  return fmt::format("{} bytes of {}", bytes, c10::toString(c10::ScalarType(type)));
}

}  // namespace

Mailbox::Mailbox(std::shared_ptr<ShmGroup::Parts> parts, GroupLayout& layout, int rank)
    : parts_(std::move(parts)),
      layout_(layout),
      me_(rank),
      world_(int(layout.world_size)),
      my_local_(rank),
      fork_count_(fork_count()) {}

void Mailbox::check_usable() const {
  if (fork_count() != fork_count_)
    throw Error(fmt::format("rank {} belongs to the process that joined the group, not to a forked copy of it", me_));
  if (broken_) std::rethrow_exception(broken_);
  if (left_) throw Error(fmt::format("rank {} has left the group", me_));
}

void Mailbox::check_peer(const char* what, int rank, int tag) const {
  if (rank < 0 || rank >= world_)
    throw std::invalid_argument(fmt::format("{}: rank {} in a group of {} ranks", what, rank, world_));
  if (rank == me_) throw std::invalid_argument(fmt::format("{}: rank {} is this rank itself", what, rank));
  if (tag < 0) throw std::invalid_argument(fmt::format("{}: tag {}: tags are not negative", what, tag));
}

/// By which rank of its ShmGroup the receiver knows this one, or by which of the larger group.
std::uint32_t Mailbox::sender_for(int to) const { return std::uint32_t(is_remote(to) ? me_ : my_local_); }

Mailbox::Handle Mailbox::send(const Region& data, int to, int tag, std::uint32_t type, std::function<void()> at_end) {
  check_peer("send", to, tag);
  auto operation = std::make_shared<Operation>();
  Operation& o = *operation;
  o.sends = true;
  const bool remote = is_remote(to);
  o.kind = data.bytes <= (remote ? kEagerRemoteBytes : kEagerBytes) ? Envelope::kBytes
           : remote                                                 ? Envelope::kOffered
           : data.hold                                              ? Envelope::kInPlace
                                                                    : Envelope::kStaged;
  o.peer = to;
  o.tag = tag;
  o.type = type;
  o.data = data.data;
  o.bytes = data.bytes;
  o.at_end = std::move(at_end);
  o.message = std::make_unique<Encoder>();
  std::uint64_t offset = o.kind == Envelope::kInPlace ? std::uint64_t(data.data - data.hold->data()) : 0;
  if (o.kind == Envelope::kOffered) {
    std::lock_guard lock(mutex_);
    offset = o.remote = ++offers_;
  }
  o.message->write(Envelope{o.kind, sender_for(to), tag, type, data.bytes, offset});
  if (o.kind == Envelope::kBytes) {
    o.message->write(data.data, data.bytes);
  } else if (o.kind != Envelope::kOffered) {
    const std::uint64_t stages =
        o.kind == Envelope::kInPlace ? 0 : std::min(data.bytes, 2 * TransferLayout::kChunkBytes);
    static_assert(TransferLayout::kStages == 2);
    o.transfer = allocate_shared(sizeof(TransferLayout) + stages);
    new (o.transfer.data()) TransferLayout{};
    o.message->add(o.transfer);
    if (o.kind == Envelope::kInPlace) o.message->add(*data.hold);
  }
  return start_send(std::move(operation));
}

Mailbox::Handle Mailbox::send_value(std::uint64_t schema, const std::string& type_name,
                                    const std::function<void(Encoder&)>& write, int to, int tag) {
  check_peer("send_object", to, tag);
  auto operation = std::make_shared<Operation>();
  Operation& o = *operation;
  o.sends = true;
  o.kind = Envelope::kValue;
  o.peer = to;
  o.tag = tag;
  o.message = std::make_unique<Encoder>();
  o.message->write(Envelope{o.kind, sender_for(to), tag, 0, 0, 0});
  o.message->write(ValueHead{schema, type_name.size()});
  o.message->write(type_name.data(), type_name.size());
  write(*o.message);
  return start_send(std::move(operation));
}

Mailbox::Handle Mailbox::send_note(const std::string& text, int to, int tag) {
  auto operation = std::make_shared<Operation>();
  Operation& o = *operation;
  o.sends = true;
  o.kind = Envelope::kNote;
  o.peer = to;
  o.tag = tag;
  o.message = std::make_unique<Encoder>();
  o.message->write(Envelope{o.kind, sender_for(to), tag, 0, text.size(), 0});
  o.message->write(text.data(), text.size());
  return start_send(std::move(operation));
}

Mailbox::Handle Mailbox::receive(std::byte* data, std::uint64_t bytes, int from, int tag, std::uint32_t type,
                                 std::function<void()> at_end) {
  auto operation = std::make_shared<Operation>();
  Operation& o = *operation;
  o.tag = tag;
  o.type = type;
  o.data = data;
  o.bytes = bytes;
  o.at_end = std::move(at_end);
  return start_receive(std::move(operation), from);
}

Mailbox::Handle Mailbox::receive_value(std::uint64_t schema, const std::string& type_name, int from, int tag) {
  auto operation = std::make_shared<Operation>();
  operation->kind = Envelope::kValue;
  operation->tag = tag;
  operation->schema = schema;
  operation->type_name = type_name;
  return start_receive(std::move(operation), from);
}

Mailbox::Handle Mailbox::receive_note(int from, int tag) {
  auto operation = std::make_shared<Operation>();
  operation->kind = Envelope::kNote;
  operation->tag = tag;
  return start_receive(std::move(operation), from);
}

Mailbox::Handle Mailbox::start_send(Handle operation) {
  std::lock_guard lock(mutex_);
  check_usable();
  // A note may have to tell of a dead rank; whoever sends one asks by itself.
  if (Gone gone = state_of(operation->peer); gone != Gone::no && operation->kind != Envelope::kNote)
    std::rethrow_exception(death_of(*operation, operation->peer, gone));
  if (operation->message->handles().size() > UINT16_MAX)
    throw std::invalid_argument(fmt::format("a value with {} handles (tensors, queues, ...): at most {} fit",
                                            operation->message->handles().size(), UINT16_MAX));
  operations_.push_back(operation);
  progress();
  return operation;
}

Mailbox::Handle Mailbox::start_receive(Handle operation, int from) {
  const char* what = operation->kind == Envelope::kValue ? "recv_object" : "recv";
  check_peer(what, from == kAnySource ? (me_ + 1) % world_ : from, operation->tag);
  operation->peer = from;
  operation->from_any = from == kAnySource;
  std::lock_guard lock(mutex_);
  check_usable();
  if (is_remote(from)) remote_->watch(from);
  operations_.push_back(operation);
  progress();
  return operation;
}

bool Mailbox::progress() {
  bool moved = fetch();
  for (const Handle& operation : operations_) {
    Operation& o = *operation;
    if (!o.done) moved |= o.sends ? push(o) : o.pulls ? pull(o) : match(o);
  }
  const std::size_t ended = std::erase_if(operations_, [](const Handle& o) { return o->done; });
  if (ended != 0 && sleepers_ != 0) tell(me_);  // whose operations they were is theirs to see
  return moved;
}

bool Mailbox::fetch() {
  bool fetched = false;
  for (;;) {
    Message message{std::make_unique<Received>(), nullptr, {}, 0, {}};
    if (inbox(me_).get(*message.memory, Deadline::now()) != RingStatus::kDone) return fetched;
    message.decoder = std::make_unique<Decoder>(std::move(*message.memory).decoder());
    read_head(message);
    if (message.envelope.from >= layout_.world_size || message.envelope.kind > Envelope::kNote)
      throw DecodeError(fmt::format("a message of kind {} of rank {}", message.envelope.kind, message.envelope.from));
    if (remote_) message.envelope.from = std::uint32_t(rank_of_[message.envelope.from]);
    SHOAL_KILL_POINT("mail.fetched");
    arrived_.push_back(std::move(message));
    fetched = true;
  }
}

void Mailbox::read_head(Message& message) {
  message.envelope = message.decoder->read<Envelope>();
  if (message.envelope.kind != Envelope::kValue) return;
  const auto head = message.decoder->read<ValueHead>();
  const auto name = message.decoder->read(head.name_length);
  message.schema = head.schema;
  message.type_name.assign(reinterpret_cast<const char*>(name.data()), name.size());
}

/// Looks for the first message that the receive asks for.
bool Mailbox::match(Operation& receive) {
  for (auto message = arrived_.begin(); message != arrived_.end();) {
    const Envelope& envelope = message->envelope;
    const bool notes = envelope.kind == Envelope::kNote;
    if (envelope.tag != receive.tag || notes != (receive.kind == Envelope::kNote) ||
        (receive.peer != kAnySource && receive.peer != int(envelope.from))) {
      ++message;
      continue;
    }
    const bool fits =
        receive.kind == Envelope::kNote ? true
        : receive.kind == Envelope::kValue
            ? envelope.kind == Envelope::kValue && message->schema == receive.schema
            : envelope.kind != Envelope::kValue && envelope.bytes == receive.bytes && envelope.type == receive.type;
    if (!fits) {
      end(receive, std::make_exception_ptr(
                       std::invalid_argument(fmt::format("{}: rank {} has sent {}. It stays there for a recv that fits",
                                                         describe(receive), envelope.from, describe(*message)))));
      return true;
    }
    const bool accepted = accept(receive, *message);
    message = arrived_.erase(message);
    if (accepted) return true;
  }
  return false;
}

/// Gives the message to the receive. False if its sender has taken it back.
bool Mailbox::accept(Operation& receive, Message& message) {
  const Envelope& envelope = message.envelope;
  receive.peer = int(envelope.from);
  if (message.failure) {
    end(receive, message.failure);
    return true;
  }
  if (receive.kind != Envelope::kBytes) {
    receive.value = std::move(message);
    end(receive);
    return true;
  }
  if (envelope.kind == Envelope::kBytes) {
    const auto bytes = message.decoder->read(envelope.bytes);
    if (!bytes.empty()) std::memcpy(receive.data, bytes.data(), bytes.size());
    end(receive);
    return true;
  }
  if (envelope.kind == Envelope::kOffered) {
    receive.pulls = true;
    receive.remote = envelope.offset;
    remote_->pull(receive.peer, receive.remote, receive.data, receive.bytes);
    return true;
  }
  receive.transfer = message.decoder->take_handle(0);
  const std::uint64_t stages =
      envelope.kind == Envelope::kStaged ? std::min(envelope.bytes, 2 * TransferLayout::kChunkBytes) : 0;
  if (receive.transfer.size() < sizeof(TransferLayout) + stages) throw DecodeError("a message without its transfer");
  std::uint32_t offered = TransferLayout::kOffered;
  // acq_rel: in place, the sender's data are older than its offer; a sender that takes back sees that it may not.
  if (!layout_of(receive).state.compare_exchange_strong(offered, TransferLayout::kTaken, std::memory_order_acq_rel)) {
    receive.transfer.release();
    if (receive.from_any) receive.peer = kAnySource;
    return false;
  }
  SHOAL_KILL_POINT("mail.taken");
  if (envelope.kind == Envelope::kStaged) {
    receive.pulls = true;
    pull(receive);
    return true;
  }
  const Hold& block = message.decoder->handle(1);
  if (envelope.offset > block.size() || envelope.bytes > block.size() - envelope.offset)
    throw DecodeError(fmt::format("{} bytes at {} of a block of {}", envelope.bytes, envelope.offset, block.size()));
  std::memmove(receive.data, block.data() + envelope.offset, envelope.bytes);  // both may be one shared tensor
  SHOAL_KILL_POINT("mail.copied");
  // R1: the data were read; pairs with A1, after which the sender changes them. seq_cst: the event is looked at next.
  layout_of(receive).state.store(TransferLayout::kDone, std::memory_order_seq_cst);
  tell(receive.peer);
  end(receive);
  return true;
}

bool Mailbox::pull(Operation& receive) {
  if (receive.remote != 0) return false;  // pulled() tells
  TransferLayout& transfer = layout_of(receive);
  const std::uint32_t chunks = chunks_of(receive.bytes);
  std::uint32_t at = transfer.emptied.load(std::memory_order_relaxed);  // relaxed: our own word
  bool moved = false;
  while (at != transfer.filled.load(std::memory_order_acquire)) {  // A2: pairs with R2, the chunk is there
    std::memcpy(receive.data + at * TransferLayout::kChunkBytes, transfer.stage(at), chunk_size(receive.bytes, at));
    SHOAL_KILL_POINT("mail.chunk.copied");
    // R3: the stage may be filled again; pairs with A3. seq_cst: the event is looked at next.
    transfer.emptied.store(++at, std::memory_order_seq_cst);
    tell(receive.peer);
    moved = true;
  }
  if (at == chunks) {
    end(receive);
  } else if (transfer.state.load(std::memory_order_acquire) == TransferLayout::kBroken) {  // acquire: says no more
    end(receive, std::make_exception_ptr(Error(fmt::format("{}: the sender gave up half-way", describe(receive)))));
    return true;
  }
  return moved;
}

bool Mailbox::push(Operation& send) {
  if (send.message) {
    // In the order in which they were sent: none before an earlier one.
    for (const Handle& other : operations_) {
      if (other.get() == &send) break;
      if (other->sends && !other->done && other->message && other->peer == send.peer) return false;
    }
    SHOAL_KILL_POINT("mail.put");
    if (is_remote(send.peer)) {
      push_remote(send);
      return true;
    }
    if (inbox(send.peer).put(*send.message, Deadline::now()) != RingStatus::kDone) {
      const Gone gone = state_of(send.peer);  // nobody may wait for this one, and it would be tried for ever
      if (gone != Gone::no) end(send, death_of(send, send.peer, gone));
      return gone != Gone::no;
    }
    send.message.reset();
    SHOAL_KILL_POINT("mail.offered");
    if (!send.transfer) {
      end(send);
      return true;
    }
  }
  if (send.remote != 0) return false;  // sent() tells
  TransferLayout& transfer = layout_of(send);
  if (send.kind == Envelope::kInPlace) {
    // A1: pairs with R1. seq_cst: after the event was prepared, where this comes before a sleep.
    if (transfer.state.load(std::memory_order_seq_cst) != TransferLayout::kDone) return false;
    end(send);
    return true;
  }
  const std::uint32_t chunks = chunks_of(send.bytes);
  std::uint32_t at = transfer.filled.load(std::memory_order_relaxed);  // relaxed: our own word
  bool moved = false;
  // A3: pairs with R3. seq_cst: after the event was prepared, where this comes before a sleep.
  while (at != chunks && at - transfer.emptied.load(std::memory_order_seq_cst) < TransferLayout::kStages) {
    std::memcpy(transfer.stage(at), send.data + at * TransferLayout::kChunkBytes, chunk_size(send.bytes, at));
    SHOAL_KILL_POINT("mail.chunk.filled");
    transfer.filled.store(++at, std::memory_order_seq_cst);  // R2: the chunk is there. seq_cst: the event comes next
    tell(send.peer);
    moved = true;
  }
  if (at == chunks) {
    end(send);
  } else if (transfer.state.load(std::memory_order_acquire) == TransferLayout::kBroken) {  // acquire: says no more
    end(send, std::make_exception_ptr(Error(fmt::format("{}: the receiver gave up half-way", describe(send)))));
    return true;
  }
  return moved;
}

void Mailbox::end(Operation& operation, std::exception_ptr failure) {
  operation.failure = std::move(failure);
  operation.message.reset();
  operation.transfer.release();
  if (operation.at_end && !operation.failure) operation.at_end();
  operation.at_end = nullptr;  // it may keep a tensor
  operation.done = true;
}

Mailbox::Gone Mailbox::state_of(int rank) const {
  if (is_remote(rank)) return remote_->state_of(rank);
  RankLayout& peer = layout_.rank(local_of(rank));
  const ProcessTag tag = ProcessTag::from_word(peer.tag.load(std::memory_order_acquire));  // acquire: not newer than it
  if (!tag) return Gone::no;                                                               // has not joined yet
  const auto state = peer.state.load(std::memory_order_seq_cst);  // after the event was prepared, before a sleep
  if (state == RankLayout::kLeft || state == RankLayout::kAborted) return Gone::left;
  return counts_as_alive(SessionCore::current(), tag) ? Gone::no : Gone::died;
}

/// Ends an operation that waits for one who is gone. What that rank did last may still be there to be found.
void Mailbox::check_alive(Operation& operation) {
  int rank = operation.peer;
  Gone gone = Gone::no;
  if (rank != kAnySource) {
    gone = state_of(rank);
  } else {
    int left = 0;
    for (int other = 0; other < world_; ++other) {
      if (other == me_) continue;
      const Gone theirs = state_of(other);
      if (theirs == Gone::no) continue;
      left += theirs == Gone::left;
      if (gone != Gone::died) gone = theirs, rank = other;
    }
    if (gone == Gone::left && left != world_ - 1) gone = Gone::no;  // the others may send
  }
  if (gone == Gone::no) return;
  if (gone == Gone::died && !is_remote(rank)) {
    const ProcessTag tag = ProcessTag::from_word(
        layout_.rank(local_of(rank)).tag.load(std::memory_order_acquire));  // acquire: as in state_of
    SessionCore& session = SessionCore::current();
    if (!session.is_alive(tag)) session.reclaim(tag);
  }
  progress();
  if (!operation.done) end(operation, death_of(operation, rank, gone));
  std::erase_if(operations_, [](const Handle& o) { return o->done; });
}

std::exception_ptr Mailbox::death_of(const Operation& operation, int rank, Gone gone) const {
  if (is_remote(rank))
    return std::make_exception_ptr(PeerDied(fmt::format("{}: {}", describe(operation), remote_->end_of(rank))));
  const RankLayout& peer = layout_.rank(local_of(rank));
  const auto pid = peer.pid.load(std::memory_order_relaxed);  // relaxed, twice: for people; seen by state_of()
  const auto who = fmt::format("{}: rank {} (process {}) ", describe(operation), rank, pid);
  if (gone == Gone::died) return std::make_exception_ptr(PeerDied(who + "died"));
  if (peer.state.load(std::memory_order_relaxed) == RankLayout::kAborted)
    return std::make_exception_ptr(Error(who + "aborted the group"));
  return std::make_exception_ptr(PeerDied(who + "left the group"));
}

bool Mailbox::take_back(Operation& operation) {
  if (operation.remote != 0 && !operation.message) {
    if (operation.sends) return remote_->withdraw(operation.remote);
    remote_->cancel(operation.peer, operation.remote);
    return true;
  }
  if (operation.message || !operation.transfer) return true;
  std::atomic<std::uint32_t>& state = layout_of(operation).state;
  std::uint32_t expected = TransferLayout::kOffered;
  // acq_rel, twice: what the other side has done by then is known; the stages and their words go by R2 and R3.
  if (operation.sends && state.compare_exchange_strong(expected, TransferLayout::kWithdrawn, std::memory_order_acq_rel))
    return true;
  // The receiver is copying, which takes no longer than it takes: the data have to stay.
  if (operation.sends && operation.kind == Envelope::kInPlace) return false;
  expected = TransferLayout::kTaken;
  state.compare_exchange_strong(expected, TransferLayout::kBroken, std::memory_order_acq_rel);
  tell(operation.peer);
  return true;
}

bool Mailbox::is_done(const Handle& operation) {
  std::lock_guard lock(mutex_);
  if (!operation->done) {
    check_usable();
    if (!progress() || !operation->done) check_alive(*operation);
  }
  return operation->done;
}

/// A ring that is full tells nobody when it has room, as its receiver's event is not ours: so it is tried again.
std::chrono::milliseconds Mailbox::longest_nap(std::chrono::milliseconds& retry) const {
  if (std::ranges::none_of(operations_, [](const Handle& o) { return o->message != nullptr; })) return kLivenessSlice;
  return std::exchange(retry, std::min(retry * 2, std::chrono::milliseconds(kLivenessSlice)));
}

bool Mailbox::sleep_until_done(std::unique_lock<std::mutex>& lock, Operation& operation, Deadline deadline) {
  if (!operation.done) check_usable();
  EventWord& event = inbox(me_).message_event();
  Spinner spinner;
  SleepNote note;
  LivenessWatch watch(kLivenessSlice);  // reclaim wakes nobody here
  MailNaps others;
  std::chrono::milliseconds retry{1};
  bool slept = false;
  while (!operation.done) {
    if (progress(); operation.done) break;
    if (!slept && spinner.turn()) {
      lock.unlock();  // for the others
      lock.lock();
      continue;
    }
    const std::uint32_t prepared = event.prepare();
    slept = true;
    if (progress(); operation.done) break;
    if (check_alive(operation); operation.done) break;
    if (deadline.passed()) break;
    const auto longest = std::min<std::chrono::nanoseconds>(watch.nap(), longest_nap(retry));
    ++sleepers_;
    lock.unlock();
    note.asleep_on(&event);
    event.sleep(prepared, deadline.left(others.next(longest, this)));
    watch.woke();
    lock.lock();
    --sleepers_;
  }
  spinner.ended(!slept);
  if (slept) event.leave();
  return operation.done;
}

bool Mailbox::wait_until_done(const Handle& operation, Deadline deadline) {
  std::unique_lock lock(mutex_);
  return sleep_until_done(lock, *operation, deadline);
}

int Mailbox::wait(const Handle& operation, std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  Operation& o = *operation;
  if (!sleep_until_done(lock, o, Deadline::after(timeout))) {
    if (take_back(o)) {
      end(o, std::make_exception_ptr(TimeoutError(fmt::format(
                 "{}: {} did not come within {}", describe(o),
                 o.peer == kAnySource ? std::string("a message") : fmt::format("rank {}", o.peer), text_of(timeout)))));
      std::erase(operations_, operation);
    } else {
      sleep_until_done(lock, o, Deadline::never());
    }
  }
  if (o.failure) std::rethrow_exception(o.failure);
  return o.peer;
}

std::exception_ptr Mailbox::failure_of(const Handle& operation) const {
  std::lock_guard lock(mutex_);
  return operation->failure;
}

int Mailbox::peer_of(const Handle& operation) const {
  std::lock_guard lock(mutex_);
  return operation->peer;
}

Mailbox::Message Mailbox::take_message(const Handle& operation) {
  std::lock_guard lock(mutex_);
  return std::move(operation->value);
}

void Mailbox::forget(const Handle& operation) {
  std::lock_guard lock(mutex_);
  if (operation->done || !take_back(*operation)) return;
  end(*operation, std::make_exception_ptr(Error(fmt::format("{}: taken back", describe(*operation)))));
  std::erase(operations_, operation);
}

int Mailbox::next_monitored_barrier() {
  std::lock_guard lock(mutex_);
  check_usable();
  return monitored_barriers_++ & 0x7fffffff;
}

// relaxed, both: a number by itself. No lock: collectives set it, and would wait for a copy of megabytes.
void Mailbox::set_timeout(std::chrono::nanoseconds timeout) { timeout_.store(timeout, std::memory_order_relaxed); }
std::chrono::nanoseconds Mailbox::timeout() const { return timeout_.load(std::memory_order_relaxed); }

void Mailbox::leave() noexcept {
  if (fork_count() != fork_count_) return;
  std::unique_lock lock(mutex_);
  if (left_) return;
  left_ = true;
  for (const Handle& operation : operations_) {
    if (!take_back(*operation)) continue;  // the receiver has a hold of its own on what it is copying
    operation->at_end = nullptr;
    end(*operation, std::make_exception_ptr(Error(fmt::format("{}: this rank left the group", describe(*operation)))));
  }
  std::erase_if(operations_, [](const Handle& o) { return o->done || o->remote == 0; });
  arrived_.clear();
  if (sleepers_ != 0) tell(me_);
  lock.unlock();
  close_remote(broken_ != nullptr, std::make_exception_ptr(Error(fmt::format("rank {} has left the group", me_))));
}

std::string Mailbox::describe(const Operation& operation) const {
  std::string text = operation.sends ? "send" : "recv";
  if (operation.kind == Envelope::kValue) text += "_object";
  if (!operation.sends && operation.kind == Envelope::kBytes)
    text += " of " + describe_bytes(operation.bytes, operation.type);
  if (!operation.type_name.empty()) text += " of " + operation.type_name;
  text += operation.sends ? " to " : " from ";
  text += operation.peer == kAnySource ? "any rank" : fmt::format("rank {}", operation.peer);
  return text + fmt::format(", tag {}", operation.tag);
}

std::string Mailbox::describe(const Message& message) {
  if (message.envelope.kind == Envelope::kValue)
    return fmt::format("a value of type {} (send_object)", message.type_name);
  return describe_bytes(message.envelope.bytes, message.envelope.type);
}

}  // namespace shoal
