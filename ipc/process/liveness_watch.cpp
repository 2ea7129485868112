#include <shoal/internal/ipc/process/liveness_watch.h>

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/death_watch.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/process/thread_number.h>

#include <algorithm>

namespace shoal {
namespace {

// All in ms.
constexpr std::uint64_t kLook = kLivenessSlice.count();
constexpr std::uint64_t kWatch = 150;
constexpr std::uint64_t kNap = 500;
constexpr std::uint64_t kFurthestWatch = 1000;  // no one claims for longer
/// A look may take this part of the time until the next one.
constexpr std::uint64_t kLookShare = 10;
constexpr std::uint64_t kLatestLook = 500;

std::uint64_t now_in_ms() {
  using namespace std::chrono;
  return std::uint64_t(duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count());
}

bool passed(std::uint64_t time, std::uint64_t now) { return time <= now || time > now + kFurthestWatch; }

// relaxed, everywhere here: a watch decides who makes the next system calls, and passes nothing on. What a look finds
// is passed on by the words that reclaim changes.
constexpr auto kWatchOrder = std::memory_order_relaxed;

}  // namespace

bool LivenessWatch::claim_look(SessionCore& session) {
  auto& word = session.layout().watches[0];
  const std::uint64_t now = now_in_ms();
  std::uint64_t seen = word.load(kWatchOrder);
  if (!passed(seen, now) || !word.compare_exchange_strong(seen, now + kLook, kWatchOrder)) return false;
  watch_ = 0;
  until_ = now + kLook;
  session.layout().looks.fetch_add(1, kWatchOrder);
  SHOAL_KILL_POINT("liveness.claimed");
  return true;
}

void LivenessWatch::look(SessionCore& session) {
  const std::uint64_t begun = now_in_ms();
  session.reclaim_all();
  const std::uint64_t now = now_in_ms(), next = now + std::min((now - begun) * kLookShare, kLatestLook);
  if (next <= until_) return;
  std::uint64_t mine = until_;
  if (session.layout().watches[0].compare_exchange_strong(mine, next, kWatchOrder)) until_ = next;
}

/// The look is somebody else's: a place among those that see to it, or a long nap.
void LivenessWatch::find_watch(SessionCore& session, std::uint64_t now) {
  auto& watches = session.layout().watches;
  // Woken early, by what was nothing for it: what it claimed counts on.
  if (watch_ != kNoWatch && until_ > now && watches[watch_].load(kWatchOrder) == until_) return;
  until_ = now + kWatch;
  for (watch_ = 1; watch_ < SessionLayout::kWatches; ++watch_)
    if (std::uint64_t seen = watches[watch_].load(kWatchOrder);
        passed(seen, now) && watches[watch_].compare_exchange_strong(seen, until_, kWatchOrder))
      return;
  watch_ = kNoWatch;
  // Not all at once: it is their wake-ups, spread out, that find out if all who watched are gone.
  const std::uint32_t mixed = (session.self().word() + thread_number()) * 2654435761u;
  until_ = now + kNap + (mixed >> 25);
}

void LivenessWatch::woke() {
  SessionCore& session = SessionCore::current();
  if (claim_look(session))
    look(session);
  else
    find_watch(session, now_in_ms());
  DeathWatch::tend(session);
  const std::uint64_t now = now_in_ms();
  nap_ = std::chrono::milliseconds(until_ > now ? until_ - now : 0);
}

bool counts_as_alive(SessionCore& session, ProcessTag tag) {
  const ProcessRecord& process = session.record(tag.slot());
  return ProcessRecord::state_of(process.state) == ProcessRecord::kAlive &&
         (process.generation.load() & ProcessTag::kGenerationMask) == tag.generation();
}

}  // namespace shoal
