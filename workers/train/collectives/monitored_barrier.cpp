#include <shoal/workers/train/monitored_barrier.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/train/collectives/monitored_ranks.h>
#include <shoal/internal/workers/train/group/time_text.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/trace_span.h>

#include <algorithm>
#include <string>
#include <vector>

namespace shoal {
namespace {

/// What rank 0 says in the end: nothing if all came.
struct Verdict {
  std::string text;
  bool only_deaths = false;

  [[noreturn]] void raise() const {
    if (only_deaths) throw PeerDied(text);
    throw TimeoutError(text);
  }
};

/// A death that nobody has told this rank of is found after as long as a wait sleeps, whichever rank is waited for.
constexpr std::chrono::milliseconds kLook{50};

class RankZero {
 public:
  RankZero(Mailbox& mailbox, int world, int round, std::chrono::nanoseconds timeout)
      : mailbox_(mailbox), round_(round), timeout_(timeout), came_(std::size_t(world)) {
    for (int rank = 1; rank < world; ++rank) {
      came_[std::size_t(rank)] = mailbox.receive_note(rank, round);
      tell(rank, "");
    }
  }

  Verdict wait(MissingRanks missing) {
    const Deadline deadline = Deadline::after(timeout_);
    for (;;) {
      Mailbox::Handle next;  // one that is still awaited
      bool someone_died = false;
      for (std::size_t rank = 1; rank < came_.size(); ++rank)
        if (!mailbox_.is_done(came_[rank]))
          next = came_[rank];
        else
          someone_died |= mailbox_.failure_of(came_[rank]) != nullptr;
      const bool late = deadline.passed();
      if (!next || late || (someone_died && missing == MissingRanks::first)) return verdict(late);
      mailbox_.wait_until_done(next, Deadline::after(deadline.left(kLook)));
    }
  }

  void announce(const Verdict& verdict) {
    for (std::size_t rank = 1; rank < came_.size(); ++rank)
      tell(int(rank), (verdict.only_deaths ? "d" : "t") + verdict.text);
  }

 private:
  /// `late_count`: the time is up, so who has not come is missing.
  Verdict verdict(bool late_count) {
    std::vector<std::string> died;
    std::vector<int> late;
    for (std::size_t rank = 1; rank < came_.size(); ++rank) {
      if (!mailbox_.is_done(came_[rank])) {
        if (late_count) late.push_back(int(rank));
        mailbox_.forget(came_[rank]);
      } else if (auto failure = mailbox_.failure_of(came_[rank])) {
        try {
          std::rethrow_exception(failure);
        } catch (const std::exception& error) {
          const std::string why = error.what();  // "recv...: rank 3 (process 4711) died"
          died.push_back(why.substr(std::min(why.rfind("rank "), why.size())));
        }
      }
    }
    if (died.empty() && late.empty()) return {};
    std::string text = fmt::format("{}", fmt::join(died, ", "));
    if (!late.empty())
      text += fmt::format("{}rank{} {} did not come within {}", died.empty() ? "" : "; ", late.size() == 1 ? "" : "s",
                          fmt::join(late, ", "), text_of(timeout_));
    return {"monitored_barrier: " + text, late.empty()};
  }
  /// Whether it arrives is nobody's concern: the rank may be one of those that are gone.
  void tell(int rank, const std::string& text) { mailbox_.send_note(text, rank, round_); }

  Mailbox& mailbox_;
  int round_;
  std::chrono::nanoseconds timeout_;
  std::vector<Mailbox::Handle> came_;  // by rank; none for rank 0
};

std::string text_in(Mailbox& mailbox, const Mailbox::Handle& note) {
  const Mailbox::Message message = mailbox.take_message(note);
  const auto bytes = message.decoder->read(message.envelope.bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Rank 0 answers at once when it comes, and then within the timeout: so its verdict is waited for as long as it takes.
void wait_for_verdict(Mailbox& mailbox, int round, std::chrono::nanoseconds timeout) {
  mailbox.wait(mailbox.send_note("", 0, round), timeout);
  const auto begun = mailbox.receive_note(0, round), ended = mailbox.receive_note(0, round);
  for (const auto& note : {begun, ended}) {
    const Deadline deadline = note == begun ? Deadline::after(timeout) : Deadline::never();
    if (!mailbox.wait_until_done(note, deadline)) {
      mailbox.forget(begun);
      mailbox.forget(ended);
      throw TimeoutError(fmt::format("monitored_barrier: rank 0 did not come within {}", text_of(timeout)));
    }
    if (auto failure = mailbox.failure_of(note)) std::rethrow_exception(failure);
  }
  const std::string text = text_in(mailbox, ended);
  if (text.size() > 1) Verdict{text.substr(1), text[0] == 'd'}.raise();
}

}  // namespace

void monitored_barrier(Communicator& ranks, std::chrono::nanoseconds timeout, MissingRanks missing) {
  monitored_barrier(ranks.mailbox(), ranks.rank(), ranks.world_size(), timeout, missing);
}

void monitored_barrier(Mailbox& mailbox, int rank, int world_size, std::chrono::nanoseconds timeout,
                       MissingRanks missing) {
  const TraceSpan span("monitored_barrier");
  const int round = mailbox.next_monitored_barrier();
  if (rank != 0) return wait_for_verdict(mailbox, round, timeout);
  RankZero zero(mailbox, world_size, round, timeout);
  const Verdict verdict = zero.wait(missing);
  zero.announce(verdict);
  if (!verdict.text.empty()) verdict.raise();
}

}  // namespace shoal
