// What a mailbox does with ranks of other hosts.
#include <shoal/internal/workers/train/group/mailbox.h>

#include <algorithm>
#include <utility>

namespace shoal {

void Mailbox::connect(std::shared_ptr<RemoteMail> remote, std::vector<int> local_of, int me) {
  std::lock_guard lock(mutex_);
  me_ = me;
  world_ = int(local_of.size());
  rank_of_.assign(layout_.world_size, -1);
  for (std::size_t rank = 0; rank < local_of.size(); ++rank)
    if (local_of[rank] >= 0) rank_of_[std::size_t(local_of[rank])] = int(rank);
  local_of_ = std::move(local_of);
  remote_ = std::move(remote);
}

void Mailbox::break_off(std::exception_ptr failure) {
  {
    std::lock_guard lock(mutex_);
    if (left_ || broken_) return;
    broken_ = failure;
    for (const Handle& operation : operations_)
      if (take_back(*operation)) end(*operation, failure);
    std::erase_if(operations_, [](const Handle& o) { return o->done; });
    if (sleepers_ != 0) tell(me_);
  }
  close_remote(true, failure);
}

/// What is on its way goes on being read until the way is closed, and nobody tells its end afterwards.
void Mailbox::close_remote(bool at_once, const std::exception_ptr& failure) {
  if (!remote_) return;
  remote_->close(at_once);
  std::lock_guard lock(mutex_);
  for (const Handle& operation : operations_)
    if (operation->remote != 0 && !operation->done) end(*operation, failure);
  std::erase_if(operations_, [](const Handle& o) { return o->done; });
  if (sleepers_ != 0) tell(me_);
}

void Mailbox::deliver(int from, Message message) {
  read_head(message);
  message.envelope.from = std::uint32_t(from);
  std::lock_guard lock(mutex_);
  if (left_ || broken_) return;
  arrived_.push_back(std::move(message));
  progress();
  tell(me_);
}

void Mailbox::push_remote(Operation& send) {
  std::exception_ptr failure;
  try {
    if (send.remote == 0)
      remote_->send(send.peer, *send.message);
    else
      remote_->offer(send.peer, send.remote, *send.message, send.data, send.bytes);
  } catch (const std::exception&) {
    failure = std::current_exception();  // it refers to what cannot go there, or there is no descriptor
  }
  if (send.remote == 0 || failure)
    end(send, std::move(failure));
  else
    send.message.reset();
}

Mailbox::Operation* Mailbox::find_remote(bool sends, int peer, std::uint64_t number) {
  for (const Handle& operation : operations_)
    if (operation->remote == number && operation->sends == sends && !operation->message &&
        (sends || (operation->pulls && operation->peer == peer)))
      return operation.get();
  return nullptr;  // nobody waits for it any more
}

void Mailbox::sent(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  if (Operation* operation = find_remote(true, 0, number)) end(*operation);
  progress();
  tell(me_);
}

void Mailbox::pulled(int from, std::uint64_t number) {
  std::lock_guard lock(mutex_);
  if (Operation* operation = find_remote(false, from, number)) end(*operation);
  progress();
  tell(me_);
}

void Mailbox::withdrawn(int from, std::uint64_t number) {
  std::lock_guard lock(mutex_);
  if (Operation* operation = find_remote(false, from, number)) {
    operation->pulls = false;
    operation->remote = 0;
    if (operation->from_any) operation->peer = kAnySource;
  }
  progress();
  tell(me_);
}

void Mailbox::look() {
  std::lock_guard lock(mutex_);
  tell(me_);
}

}  // namespace shoal
