// The mail of all groups of this process, which is moved while something else is waited for.
#pragma once

#include <shoal/internal/workers/train/group/mailbox.h>

#include <chrono>
#include <memory>

namespace shoal {

/// Lists a mailbox for as long as it is there: whoever waits for something else in this process moves its mail meanwhile.
///
/// Messages move in calls alone, and a peer may come to what is waited for only when it has got what is under way here: a
/// send that nobody has waited for yet, in this group or another. So every wait of a rank (for a round, for a message of
/// another group, for another host) moves what it can of all mailboxes before it sleeps, and does not sleep for long while
/// there is anything under way.
void list_mailbox(const std::shared_ptr<Mailbox>& mailbox);

/// Moves what can be moved in all listed mailboxes but this one, and but those that another thread is at. Threads: any.
Mailbox::Motion move_all_mail(const Mailbox* but = nullptr) noexcept;

/// For one wait that sleeps: how long, since nobody wakes it for what is under way besides.
class MailNaps {
 public:
  /// Moves what can be moved, and returns for how long to sleep: `longest`, or 50 us to 3.2 ms while mail is under way.
  /// Called with the event word prepared, so that nothing that comes meanwhile is slept through.
  std::chrono::nanoseconds next(std::chrono::nanoseconds longest, const Mailbox* but = nullptr) noexcept;

 private:
  static constexpr std::chrono::microseconds kShortest{50}, kLongest{3200};
  std::chrono::microseconds nap_ = kShortest;
};

/// Mail moves as long as this is there, by a thread of this process: for a wait in somebody else's code.
class MailMoves {
 public:
  MailMoves() noexcept;
  MailMoves(const MailMoves&) = delete;
  ~MailMoves();

 private:
  bool moves_ = false;
};

}  // namespace shoal
