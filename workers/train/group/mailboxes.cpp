#include <shoal/internal/workers/train/group/mailboxes.h>

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/one_per_process.h>
#include <shoal/internal/ipc/fork/service_thread.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace shoal {
namespace {

struct Mailboxes {
  std::mutex mutex;
  std::vector<std::weak_ptr<Mailbox>> all;
};
constinit OnePerProcess<Mailboxes> mailboxes;

}  // namespace

void list_mailbox(const std::shared_ptr<Mailbox>& mailbox) {
  Mailboxes& list = mailboxes.get();
  std::lock_guard lock(list.mutex);
  std::erase_if(list.all, [](const std::weak_ptr<Mailbox>& listed) { return listed.expired(); });
  list.all.push_back(mailbox);
}

Mailbox::Motion move_all_mail(const Mailbox* but) noexcept {
  Mailboxes* const list = mailboxes.if_there();
  if (list == nullptr) return Mailbox::Motion::none;
  const std::unique_lock lock(list->mutex, std::try_to_lock);
  if (!lock) return Mailbox::Motion::under_way;  // another thread moves it
  Mailbox::Motion found = Mailbox::Motion::none;
  for (const std::weak_ptr<Mailbox>& listed : list->all)
    if (const std::shared_ptr<Mailbox> mailbox = listed.lock(); mailbox && mailbox.get() != but)
      found = std::max(found, mailbox->move());
  return found;
}

std::chrono::nanoseconds MailNaps::next(std::chrono::nanoseconds longest, const Mailbox* but) noexcept {
  const Mailbox::Motion motion = move_all_mail(but);
  if (motion == Mailbox::Motion::none) return longest;
  if (motion == Mailbox::Motion::moved) nap_ = kShortest;
  return std::min<std::chrono::nanoseconds>(longest, std::exchange(nap_, std::min(2 * nap_, kLongest)));
}

namespace {

/// Sleeps for good once nobody has waited for a second: most waits are short, and shall not have to wake it.
class Mover {
 public:
  Mover() {
    start_service_thread("shoal-mover", [this] { run(); });
  }

  void begin() {
    const bool under_way = move_all_mail() != Mailbox::Motion::none;
    std::lock_guard lock(mutex_);
    ++waits_;
    hurried_ |= under_way;
    if (under_way || sleeps_) changed_.notify_one();
  }

  void end() {
    std::lock_guard lock(mutex_);
    --waits_;
  }

 private:
  static constexpr int kIdleSlices = 10;

  [[noreturn]] void run() {
    MailNaps naps;
    int idle = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      std::chrono::nanoseconds nap = kLivenessSlice;
      if (waits_ != 0) {
        idle = 0;
        lock.unlock();
        nap = naps.next(kLivenessSlice);
        lock.lock();
      } else if (++idle > kIdleSlices) {
        sleeps_ = true;
        changed_.wait(lock, [this] { return waits_ != 0; });
        sleeps_ = false;
        continue;
      }
      changed_.wait_for(lock, nap, [this] { return hurried_; });
      if (std::exchange(hurried_, false)) naps = {};
    }
  }

  std::mutex mutex_;  // of these:
  std::condition_variable changed_;
  int waits_ = 0;
  bool hurried_ = false, sleeps_ = false;
};
constinit OnePerProcess<Mover> mover;

[[gnu::init_priority(101)]] const AtFork at_fork({
    .stage = ForkStage::kRooms,
    .in_child =
        []() noexcept {
          mailboxes.forget();
          mover.forget();
        },
});

}  // namespace

Mailbox::Motion Mailbox::move() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Motion::under_way;
  if (operations_.empty() || left_ || sleepers_ != 0)
    return Motion::none;  // who sleeps here is woken for all that moves
  try {
    if (progress()) return Motion::moved;
  } catch (const std::exception&) {  // a message that makes no sense is lost for whoever reads it
  }
  return operations_.empty() ? Motion::none : Motion::under_way;
}

MailMoves::MailMoves() noexcept {
  try {
    mover.get().begin();
    moves_ = true;
  } catch (const std::exception&) {  // no thread is to be had: the wait goes on without
  }
}

MailMoves::~MailMoves() {
  if (moves_) mover.get().end();
}

}  // namespace shoal
