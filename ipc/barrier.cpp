#include <fmt/format.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/sync/spin.h>

#include <new>

namespace shoal {
namespace {

constexpr std::uint64_t kOneArrival = 4;

int arrived(std::uint64_t state) { return int(state >> 2 & 0x3fffffff); }
std::uint64_t round_of(std::uint64_t state) { return state >> 32; }
bool is_broken(std::uint64_t state) { return state & BarrierLayout::kBroken; }

Hold checked_block(int parties) {
  if (parties < 1 || parties >= int(ProcessTag::kSlotCount))
    throw std::invalid_argument(
        fmt::format("Barrier of {} parties: give 1 to {}", parties, ProcessTag::kSlotCount - 1));
  return allocate_shared(sizeof(BarrierLayout));
}

}  // namespace

Barrier::Barrier(int parties) : Barrier(checked_block(parties)) {
  new (layout_) BarrierLayout{BarrierLayout::kMagic, BarrierLayout::kVersion, std::uint32_t(parties), {}, {0}};
  // Only now is it a barrier to those that walk the heap.
  Session::current().heap().memory().header(hold_->block()).type.store(BlockType::kBarrier, std::memory_order_release);
}

Barrier::Barrier(Hold hold)
    : hold_(std::make_shared<Hold>(std::move(hold))), layout_(reinterpret_cast<BarrierLayout*>(hold_->data())) {}

int Barrier::wait_until(Deadline deadline) {
  std::uint64_t state = layout().state.load();
  std::uint64_t round;
  int order;
  for (;;) {
    if (is_broken(state)) throw BrokenBarrier("Barrier::wait: the barrier is broken; reset() makes it whole");
    round = round_of(state);
    order = arrived(state);
    bool last = order + 1 == parties();
    // The last one to arrive starts the next round with nobody in it.
    std::uint64_t next = last ? (round + 1) << 32 : state + kOneArrival;
    // seq_cst: the waiters' word is looked at next (EventWord), and what a party did before the barrier
    // is seen by all after it.
    if (layout().state.compare_exchange_strong(state, next)) {
      if (!last) break;
      layout().event.notify_all();
      return order;
    }
  }
  Spinner spinner;
  bool slept = false;
  for (;;) {
    state = layout().state.load();
    if (round_of(state) != round) break;
    if (is_broken(state)) throw BrokenBarrier("Barrier::wait: the barrier was broken while waiting");
    if (deadline.passed()) {
      if (layout().state.compare_exchange_strong(state, state | BarrierLayout::kBroken)) {
        layout().event.notify_all();
        throw TimeoutError(
            fmt::format("Barrier::wait: timed out with {} of {} parties there", arrived(state), parties()));
      }
      continue;
    }
    if (!slept && spinner.turn()) continue;
    std::uint32_t prepared = layout().event.prepare();
    if (layout().state.load() != state) continue;
    if (slept) Session::current().reclaim_dead_holders(hold_->block());  // which breaks it, if one crashed
    layout().event.sleep(prepared, deadline.left(kLivenessSlice));
    slept = true;
  }
  spinner.ended(!slept);
  if (round_of(state) == ((round + 1) & 0xffffffff) && state & BarrierLayout::kLastWasReset)
    throw BrokenBarrier("Barrier::wait: the barrier was reset while waiting");
  return order;
}

void Barrier::abort() { layout().break_it(); }

void Barrier::reset() {
  std::uint64_t state = layout().state.load();
  while (!layout().state.compare_exchange_weak(state, (round_of(state) + 1) << 32 | BarrierLayout::kLastWasReset)) {
  }
  layout().event.notify_all();
}

bool Barrier::broken() const { return is_broken(layout().state.load()); }
int Barrier::parties() const { return int(layout().parties); }
int Barrier::n_waiting() const { return arrived(layout().state.load()); }

Barrier Codec<Barrier>::decode(Decoder& decoder) {
  Hold hold = decoder.handle(decoder.read<std::uint32_t>()).share();
  if (hold.size() != sizeof(BarrierLayout)) throw DecodeError("this block of shared memory is no barrier");
  Barrier barrier(std::move(hold));
  BarrierLayout& layout = barrier.layout();
  if (layout.magic != BarrierLayout::kMagic || layout.version != BarrierLayout::kVersion)
    throw DecodeError("this block of shared memory is no barrier of this version");
  return barrier;
}

}  // namespace shoal
