#include <shoal/internal/workers/train/group/rounds.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/process/liveness_watch.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/trace/sleep_note.h>
#include <shoal/internal/workers/train/group/mailboxes.h>
#include <shoal/internal/workers/train/group/patience.h>
#include <shoal/internal/workers/train/group/rank_cpus.h>
#include <shoal/internal/workers/train/group/ranks_late.h>
#include <shoal/internal/workers/train/group/time_out_report.h>
#include <shoal/internal/workers/train/group/time_text.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace shoal {
namespace {

/// Longer than programs take to start their ranks: who waits for ranks that nobody started learns of it here.
constexpr std::chrono::seconds kTellsAfter{10};

}  // namespace

Rounds::Rounds(GroupLayout& layout, int rank)
    : layout_(layout), rank_(rank), fork_count_(fork_count()), round_(layout.first_round) {
  RankLayout& own = mine();
  std::uint32_t nobody = 0;
  // The tag is what a rank belongs to: from here on its death is noticed.
  if (!own.tag.compare_exchange_strong(nobody, Session::current().self().word(), std::memory_order_acq_rel))
    throw std::invalid_argument(
        fmt::format("rank {} of this group was joined before, by process {}; make a group for each use", rank,
                    own.pid.load(std::memory_order_relaxed)));  // relaxed: a number for people
  SHOAL_KILL_POINT("group.join.after_tag");
  own.pid.store(::getpid(), std::memory_order_relaxed);                  // relaxed: likewise
  own.culprit.store(RankLayout::kNoCulprit, std::memory_order_relaxed);  // relaxed: R2 follows before it matters
  own.state.store(RankLayout::kJoined, std::memory_order_release);
}

Rounds::~Rounds() {
  if (fork_count() != fork_count_) return;
  const std::uint32_t state = mine().state.load(std::memory_order_relaxed);  // relaxed: no other process writes it
  if (state == RankLayout::kGaveUp || state == RankLayout::kAborted) return;
  // R2: pairs with A2, which reads the culprit. seq_cst for the event word.
  mine().state.store(RankLayout::kLeft, std::memory_order_seq_cst);
  mine().event.notify_all();
}

void Rounds::check_usable() const {
  if (broken_) std::rethrow_exception(broken_);
  if (fork_count() != fork_count_)
    throw Error(fmt::format("rank {} belongs to the process that joined the group, not to a forked copy of it", rank_));
  // relaxed: whoever set it in this process has said so to this thread, or the wait finds it.
  if (layout_.rank(rank_).state.load(std::memory_order_relaxed) == RankLayout::kAborted)
    throw Error(fmt::format("rank {} has aborted the group", rank_));
}

void Rounds::abort_for_all() noexcept {
  if (fork_count() != fork_count_) return;
  std::uint32_t joined = RankLayout::kJoined;  // a rank that gave up has broken the group already
  // R5: pairs with A3. seq_cst: for the event words, as R3.
  mine().state.compare_exchange_strong(joined, RankLayout::kAborted, std::memory_order_seq_cst);
  mine().event.notify_all();
  abort();
}

void Rounds::abort() noexcept {
  aborted_.store(true, std::memory_order_seq_cst);  // R4: pairs with A4; seq_cst for the event words
  for (int other = 0; other < world_size(); ++other)
    layout_.rank(other).event.notify_all();  // one of them it sleeps on
}

void Rounds::signal() {
  SHOAL_KILL_POINT("group.signal.before");
  // R1: all that this rank wrote in the round; pairs with A1. seq_cst: the event word is looked at next.
  mine().round.store(++round_, std::memory_order_seq_cst);
  SHOAL_KILL_POINT("group.signal.before_wake");
  mine().event.notify_all();
  stage_ = next_stage() + 1 == GroupLayout::kStages ? 0 : stage_ + 1;
}

void Rounds::wait(const char* what) {
  SHOAL_KILL_POINT("group.wait");
  // Own rank first by chance, others in order: the order matters little, since the slowest decides.
  std::optional<Deadline> deadline;  // one for all ranks; the clock is read by the first wait that does not end soon
  for (int other = 0; other < world_size(); ++other)
    if (other != rank_) wait_for(layout_.rank(other), what, deadline);
  if (!std::exchange(has_met_, true) && cpu_share(layout_, rank_) < cpus_needed_) turns_ = Spinner::Turns::yields;
  check_nobody_gave_up(what);
}

bool Rounds::has_arrived(RankLayout& peer) const {
  // A1: pairs with R1. The difference is right across the wrap-around.
  return std::int32_t(peer.round.load(std::memory_order_seq_cst) - round_) >= 0;
}

void Rounds::wait_for(RankLayout& peer, const char* what, std::optional<Deadline>& deadline) {
  if (has_arrived(peer)) return;
  Spinner spinner(turns_);
  while (spinner.turn())
    if (has_arrived(peer)) return spinner.ended(true);
  // A rank that yields anyhow has not its CPU for itself.
  if (has_met_ && turns_ == Spinner::Turns::pauses && Patience().wait([&] { return has_arrived(peer); }))
    return spinner.ended(true);
  if (!deadline) deadline = Deadline::after(timeout_);
  if (!has_met_ && !tells_at_)
    tells_at_ = Deadline::after(std::min<std::chrono::nanoseconds>(kTellsAfter, timeout_ / 2));
  SleepNote note;
  LivenessWatch watch(kLivenessSlice);  // a reclaimer's wake-up may be missed: see wake_all_sleepers
  MailNaps mail;                        // the peer that is late may be waiting for what is under way here
  for (;;) {
    std::uint32_t prepared = peer.event.prepare();
    if (has_arrived(peer)) break;
    const std::chrono::nanoseconds nap = mail.next(watch.nap());
    // Before the sleep, not after: the state may have changed before the event word was prepared.
    check_peers(what);
    if (aborted_.load(std::memory_order_seq_cst))  // A4: seq_cst, after the event word was prepared
      fail(std::make_exception_ptr(Error(fmt::format("{}: rank {} was told to give up", what, rank_))),
           RankLayout::kNoCulprit);
    if (!has_met_) tell_of_absent(what);
    if (deadline->passed()) give_up(what);
    note.asleep_on(&peer.event);
    peer.event.sleep(prepared, deadline->left(nap));
    watch.woke();
  }
  peer.event.leave();
  spinner.ended(false);
}

void Rounds::check_peers(const char* what) {
  SessionCore& session = SessionCore::current();
  int dead = -1, left = -1;
  for (int other = 0; other < world_size(); ++other) {
    RankLayout& peer = layout_.rank(other);
    ProcessTag tag =
        ProcessTag::from_word(peer.tag.load(std::memory_order_acquire));     // acquire: its state is not older
    if (other == rank_ || !tag || has_arrived(peer)) continue;               // not joined yet is not dead
    const std::uint32_t state = peer.state.load(std::memory_order_seq_cst);  // A2, A3
    const bool has_left = state == RankLayout::kLeft;
    if (state == RankLayout::kGaveUp || state == RankLayout::kAborted)
      continue;  // looked at below, if it does not matter whether it has arrived
    bool gone = !has_left && !counts_as_alive(session, tag);
    if (!(has_left || gone) || has_arrived(peer)) continue;  // once more: it may have ended its part and then itself
    if (gone)
      dead = other;
    else if (int culprit = peer.culprit.load(std::memory_order_relaxed); culprit != RankLayout::kNoCulprit)  // by A2
      dead = culprit;
    else
      left = other;
  }
  if (dead >= 0) {
    RankLayout& peer = layout_.rank(dead);
    ProcessTag tag =
        ProcessTag::from_word(peer.tag.load(std::memory_order_acquire));  // acquire: its state is not older
    if (!session.is_alive(tag)) session.reclaim(tag);
    fail(std::make_exception_ptr(
             PeerDied(fmt::format("{}: rank {} (process {}) died", what, dead,
                                  peer.pid.load(std::memory_order_relaxed)))),  // relaxed: for people
         dead);
  }
  check_nobody_gave_up(what);
  if (left >= 0) {
    const auto pid = layout_.rank(left).pid.load(std::memory_order_relaxed);  // relaxed: for people
    fail(std::make_exception_ptr(PeerDied(fmt::format("{}: rank {} (process {}) left the group, and calls nothing more "
                                                      "(ranks whose data end earlier need a Join)",
                                                      what, left, pid))),
         RankLayout::kNoCulprit);
  }
}

void Rounds::tell_of_absent(const char* what) {
  if (!tells_at_->passed()) return;
  tells_at_ = Deadline::never();
  std::vector<int> absent;
  for (int other = 0; other < world_size(); ++other)
    if (layout_.rank(other).tag.load(std::memory_order_relaxed) == 0) absent.push_back(other);  // relaxed: for people
  // relaxed: decides who tells, and passes nothing on.
  if (absent.empty() || layout_.flight(1).told.exchange(1, std::memory_order_relaxed) != 0) return;
  log_warning("{}: rank{} {} of this group of {} {} not joined yet: is it started? Rank {} waits for up to {}", what,
              absent.size() == 1 ? "" : "s", fmt::join(absent, ", "), world_size(), absent.size() == 1 ? "has" : "have",
              rank_, text_of(timeout_));
}

/// Returns if all have come after all. What the others do is theirs to find out: their rounds go on until they look
/// at this rank's state, in the round that it gave up in at the latest, unless all came in the very moment in which it
/// did; then in the next one.
void Rounds::give_up(const char* what) {
  std::vector<int> missing;
  for (int other = 0; other < world_size(); ++other)
    if (other != rank_ && !has_arrived(layout_.rank(other))) missing.push_back(other);
  if (missing.empty()) return;
  mine().culprit.store(missing[0], std::memory_order_relaxed);  // relaxed: published by R3
  // R3: pairs with A3. seq_cst: a rank that signals after this, which is seq_cst too, sees it when it has waited.
  mine().state.store(RankLayout::kGaveUp, std::memory_order_seq_cst);
  if (when_late_) when_late_(missing);
  const std::string report = report_time_out(layout_);
  broken_ = std::make_exception_ptr(
      RanksLate(fmt::format("{}: not all ranks came within {}: rank{} {} {} missing{}{}", what, text_of(timeout_),
                            missing.size() == 1 ? "" : "s", fmt::join(missing, ", "),
                            missing.size() == 1 ? "is" : "are", report.empty() ? "" : "; ", report),
                missing));
  std::rethrow_exception(broken_);
}

void Rounds::check_nobody_gave_up(const char* what) {
  for (int other = 0; other < world_size(); ++other) {
    RankLayout& peer = layout_.rank(other);
    const std::uint32_t state = peer.state.load(std::memory_order_seq_cst);  // A3
    if (state == RankLayout::kAborted)
      fail(
          std::make_exception_ptr(Error(fmt::format("{}: rank {} (process {}) aborted the group", what, other,
                                                    peer.pid.load(std::memory_order_relaxed)))),  // relaxed: for people
          RankLayout::kNoCulprit);
    if (other == rank_ || state != RankLayout::kGaveUp) continue;
    const int awaited = peer.culprit.load(std::memory_order_relaxed);  // relaxed: A3 came before
    const auto pid = peer.pid.load(std::memory_order_relaxed);         // relaxed: for people
    fail(std::make_exception_ptr(
             RanksLate(fmt::format("{}: rank {} (process {}) gave up, which had waited too long for rank {}", what,
                                   other, pid, awaited),
                       {awaited})),
         RankLayout::kNoCulprit);
  }
}

void Rounds::fail(std::exception_ptr error, int culprit) {
  broken_ = error;
  mine().culprit.store(culprit, std::memory_order_relaxed);  // relaxed: published by R2 when this rank leaves
  std::rethrow_exception(error);
}

}  // namespace shoal
