#include <shoal/internal/workers/train/group/peer_buffers.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/workers/train/group/rounds.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <bit>
#include <chrono>

namespace shoal {
namespace {

struct Letter {
  static constexpr std::uint32_t kValue = PeerBuffers::kSlots + 1;  // in `slot`: no letter, a value follows

  std::uint64_t emptied;  // bit n: slot n
  std::uint32_t sender;
  std::uint32_t slot;  // of the block in the letter; PeerBuffers::kSlots for none
};

static_assert(PeerBuffers::kSlots <= 64);

/// A letter is put where there is always room and got where it lies already, so this is about a bug or a
/// machine that stands still, not about the other ranks.
constexpr std::chrono::seconds kPatience{30};

/// Whether this process itself still has the block: a hold of its own, not only others' (which may be
/// the very ones that were given out here).
bool is_held_by_self(BlockOffset block) {
  Session& session = Session::current();
  const std::uint32_t own = session.self().word();
  bool held = false;
  session.heap().memory().for_each_hold(block, [&](std::uint32_t, std::atomic<std::uint32_t>& word) {
    held = word.load(std::memory_order_relaxed) == own;  // relaxed: our own word, or of no interest
    return !held;
  });
  return held;
}

}  // namespace

PeerBuffers::PeerBuffers(Rounds& rounds, std::vector<Ring>& inboxes)
    : rounds_(rounds),
      inboxes_(inboxes),
      seen_(std::size_t(rounds.world_size())),
      letters_read_(seen_.size()),
      values_(seen_.size()) {}

PeerBuffers::Place PeerBuffers::show(const Hold& hold) {
  ++uses_;
  auto found = std::ranges::find_if(shown_, [&](const Shown& s) { return s.block == hold.block(); });
  if (found != shown_.end()) {
    found->last_use = uses_;
    look_after(1);
    return {std::uint32_t(found - shown_.begin()), false};
  }
  auto before = std::ranges::find(shown_before_, hold.block());
  const bool once = before == shown_before_.end();
  if (once) {
    shown_before_[next_before_] = hold.block();
    next_before_ = (next_before_ + 1) % kSlots;
  } else {
    *before = {};
  }
  std::uint64_t emptied = 0;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot)
    if (is_unused(slot)) emptied |= 1ull << slot;
  // The slot that was not used for longest; an empty one counts as never used.
  auto age = [&](std::uint32_t slot) { return emptied >> slot & 1 ? 0 : shown_[slot].last_use; };
  std::uint32_t oldest = 0;
  for (std::uint32_t slot = 1; slot < kSlots; ++slot)
    if (age(slot) < age(oldest)) oldest = slot;
  send(emptied, oldest, &hold);
  shown_[oldest] = Shown{hold.block(), uses_};
  return {oldest, once};
}

void PeerBuffers::look_after(std::uint32_t slots) {
  std::uint64_t emptied = 0;
  for (; slots != 0; --slots) {
    if (is_unused(next_to_check_)) emptied |= 1ull << next_to_check_;
    next_to_check_ = (next_to_check_ + 1) % kSlots;
  }
  if (emptied != 0) send(emptied, kSlots, nullptr);
}

void PeerBuffers::drop(int rank, std::uint32_t slot) {
  if (rank == rounds_.rank())
    shown_[slot] = Shown{};
  else if (auto& slots = seen_[std::size_t(rank)]; slot < slots.size())
    slots[slot] = Seen{};
}

bool PeerBuffers::is_unused(std::uint32_t slot) const {
  return shown_[slot].block && !is_held_by_self(shown_[slot].block);
}

void PeerBuffers::send(std::uint64_t emptied, std::uint32_t slot, const Hold* hold) {
  for (int other = 0; other < rounds_.world_size(); ++other) {
    if (other == rounds_.rank()) continue;
    Encoder letter;
    letter.write(Letter{emptied, std::uint32_t(rounds_.rank()), slot});
    if (hold) letter.add(*hold);
    SHOAL_KILL_POINT("group.letter.before_put");
    put(other, letter);
    SHOAL_KILL_POINT("group.letter.after_put");
  }
  ++letters_sent_;
  for (; emptied != 0; emptied &= emptied - 1) shown_[std::size_t(std::countr_zero(emptied))] = Shown{};
}

void PeerBuffers::put(int to, Encoder& message) {
  if (inboxes_[std::size_t(to)].put(message, Deadline::after(kPatience)) != RingStatus::kDone)
    throw Error(fmt::format("the inbox of rank {} takes no letters", to));
}

void PeerBuffers::read_letters(int from, std::uint32_t letters) {
  while (letters_read_[std::size_t(from)] != letters) read_message();
}

/// What is waited for was put before it was announced; in front of it there may be what another rank is writing.
void PeerBuffers::read_message() {
  auto message = std::make_unique<Received>();
  if (inboxes_[std::size_t(rounds_.rank())].get(*message, Deadline::after(kPatience)) != RingStatus::kDone)
    throw Error(fmt::format("what was sent to rank {} did not come", rounds_.rank()));
  auto decoder = std::make_unique<Decoder>(std::move(*message).decoder());
  auto letter = decoder->read<Letter>();
  if (letter.sender >= seen_.size() || letter.slot > Letter::kValue)
    throw DecodeError(fmt::format("letter about buffer {} of rank {}", letter.slot, letter.sender));
  if (letter.slot == Letter::kValue) {
    values_[letter.sender] = Value{std::move(message), std::move(decoder)};
    return;
  }
  auto& slots = seen_[letter.sender];
  if (slots.empty()) slots.resize(kSlots);
  for (; letter.emptied != 0; letter.emptied &= letter.emptied - 1)
    slots[std::size_t(std::countr_zero(letter.emptied))] = Seen{};
  if (letter.slot < kSlots) {
    Seen seen;
    seen.hold = decoder->handle(0).share();
    seen.data = seen.hold.data();
    seen.size = seen.hold.size();
    slots[letter.slot] = std::move(seen);
  }
  SHOAL_KILL_POINT("group.letter.after_get");
  ++letters_read_[letter.sender];
}

void PeerBuffers::begin_value(Encoder& message) const {
  message.write(Letter{0, std::uint32_t(rounds_.rank()), Letter::kValue});
}

void PeerBuffers::send_value(int to, Encoder& message) {
  SHOAL_KILL_POINT("group.value.before_put");
  put(to, message);
  SHOAL_KILL_POINT("group.value.after_put");
}

PeerBuffers::Value PeerBuffers::take_value(int from) {
  Value& place = values_[std::size_t(from)];
  while (!place.message) read_message();
  SHOAL_KILL_POINT("group.value.after_get");
  return std::move(place);
}

std::byte* PeerBuffers::find(int from, std::uint32_t slot, std::uint64_t offset, std::uint64_t size) const {
  auto& slots = seen_[std::size_t(from)];
  if (slot >= slots.size() || !slots[slot].hold || offset > slots[slot].size || size > slots[slot].size - offset)
    throw Error(
        fmt::format("rank {} announced {} bytes at {} of its buffer {}, which is not there", from, size, offset, slot));
  return slots[slot].data + offset;
}

}  // namespace shoal
