// The steps that all collectives are made of: announce, agree, move bytes in place or through the stages.
#include <fmt/format.h>
#include <shoal/internal/workers/train/group/communicator_state.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace shoal {

namespace {

/// Data in the heap is faster where it is, in two rounds, unless it is next to nothing.
constexpr std::size_t kTinyBytes = 512;

constexpr const char* kNames[] = {"all_reduce",       "broadcast",      "all_gather",        "reduce_scatter",
                                  "reduce",           "gather",         "scatter",           "barrier",
                                  "all_to_all",       "all_to_all",     "all_gather_object", "gather_object",
                                  "broadcast_object", "scatter_object", "refused",           "split",
                                  "all_reduce_sparse"};
static_assert(std::size(kNames) == std::size_t(Collective::all_reduce_sparse) + 1, "a name for each, in their order");

bool is_of_values(Collective what) {
  return what >= Collective::all_gather_object && what <= Collective::scatter_object;
}

std::string describe(const Announcement& announced) {
  std::string text = name_of_any(std::uint32_t(announced.what));
  if (is_of_values(announced.what))
    return text + (announced.root >= 0 ? fmt::format("(root {})", announced.root) : "()");
  text += fmt::format("({} bytes", announced.bytes);
  const auto type = c10::ScalarType(announced.type);
  if (announced.op <= std::uint32_t(ReduceOp::premul_sum))
    text += fmt::format(", {} of {}", name_of(ReduceOp(announced.op)), c10::toString(type));
  else if (announced.type < std::uint32_t(c10::ScalarType::Undefined))
    text += fmt::format(" of {}", c10::toString(type));
  if (announced.root >= 0) text += fmt::format(", root {}", announced.root);
  return text + ")" + text_of(announced.pass);
}

bool same(const Announcement& a, const Announcement& b) {
  // What each rank gives to all_to_all may differ; the round before has compared it.
  return a.what == b.what && a.type == b.type && a.op == b.op && a.root == b.root && a.pass == b.pass &&
         (a.bytes == b.bytes || a.what == Collective::all_to_all_parts);
}

}  // namespace

const char* name_of(Collective what) { return kNames[int(what)]; }
const char* name_of_any(std::uint32_t what) { return what < std::size(kNames) ? kNames[what] : "?"; }

/// Every collective starts here, with exactly one round. So where ranks disagree, all have done the
/// same number of rounds when they find out.
Communicator::State::Transfer Communicator::State::begin(Announcement announcement, const Region& shown,
                                                         std::uint64_t most_bytes) {
  const char* what = name_of(announcement.what);
  rounds.check_usable();
  // all_to_all is one to its callers.
  if (announcement.what != Collective::all_to_all_parts)
    recorder.begin(announcement.what, announcement.type, announcement.bytes);
  const bool small = most_bytes <= kSmallBytes, tiny = most_bytes <= kTinyBytes;
  announcement.pass = ForwardPassScope::current().announced();
  announcement.buffer = Announcement::kPrivate;
  if (!tiny && shown.hold) {
    announcement.offset = std::uint64_t(shown.data - shown.hold->data());
    if (changes_data(announcement.what)) announcement.block = shown.hold->block().value;
  }
  if (shows(announcement, me) && !tiny && shown.hold && world > 1) {
    const PeerBuffers::Place place = buffers.show(*shown.hold);
    announcement.buffer = place.slot;
    announcement.once = place.once;
  } else {
    // A barrier is nobody's innermost loop: it finds all that was let go of.
    if (world > 1) buffers.look_after(announcement.what == Collective::barrier ? PeerBuffers::kSlots : 1);
    if (shows(announcement, me) && small) copy_bytes(layout.stage(me, rounds.next_stage()), shown.data, shown.bytes);
  }
  announcement.letters = buffers.letters_sent();
  rounds.own_announcement() = announcement;
  meet(what);

  bool some_private = false, some_in_heap = false;
  int other_mind = -1, refusing = -1;
  for (int rank = 0; rank < world; ++rank) {
    const Announcement& theirs = rounds.announcement(rank);
    if (rank != me) buffers.read_letters(rank, theirs.letters);
    if (theirs.what == Collective::refused) refusing = rank;
    if (theirs.once != 0) shown_once.emplace_back(rank, theirs.buffer);
    if (!same(theirs, announcement)) other_mind = rank;
    // One that gives nothing to all_to_all has nothing in the heap, nor anywhere else.
    if (shows(theirs, rank) && theirs.bytes != 0)
      (theirs.buffer == Announcement::kPrivate ? some_private : some_in_heap) = true;
  }
  Transfer transfer = Transfer::staged;
  if (small && !some_in_heap)
    transfer = Transfer::announced;
  else if (other_mind < 0 && data_overlaps())
    transfer = Transfer::apart;
  else if (!some_private || world == 1)
    transfer = Transfer::in_place;
  if (transfer != Transfer::in_place || other_mind >= 0) drop_buffers_of_once();
  if (refusing >= 0) {
    const Announcement& theirs = rounds.announcement(refusing);
    throw CollectiveMismatch(fmt::format(
        "{}: rank {} cannot take part: {}", name_of(Collective(theirs.op)), refusing,
        std::string_view(reinterpret_cast<const char*>(layout.stage(refusing, rounds.last_stage())), theirs.bytes)));
  }
  if (other_mind >= 0) {
    const Announcement& theirs = rounds.announcement(other_mind);
    throw CollectiveMismatch(fmt::format(
        "rank {} called {} where rank {} called {}: all ranks have to call the same collectives in the same order{}",
        me, describe(announcement), other_mind, describe(theirs),
        why_apart(fmt::format("rank {}", me), announcement.pass, fmt::format("rank {}", other_mind), theirs.pass)));
  }
  return transfer;
}

void Communicator::refuse(Collective what, const std::string& why) {
  State& s = *state_;
  std::string text = why.substr(0, 1000);
  static_assert(State::kSmallBytes >= 1000);  // goes with the announcement
  try {
    s.begin({Collective::refused, State::kNone, std::uint32_t(what), -1, text.size()},
            {reinterpret_cast<std::byte*>(text.data()), text.size(), nullptr});
  } catch (const CollectiveMismatch&) {  // what the others say
  }
  throw CollectiveMismatch(why);
}

/// Whether what two ranks are to change overlaps, but is not the same: the same is changed by all alike.
bool Communicator::State::data_overlaps() const {
  for (int a = 0; a < world; ++a) {
    const Announcement& first = rounds.announcement(a);
    if (first.block == 0) continue;
    for (int b = a + 1; b < world; ++b) {
      const Announcement& second = rounds.announcement(b);
      if (second.block != first.block || second.offset == first.offset) continue;
      const std::uint64_t distance =
          second.offset > first.offset ? second.offset - first.offset : first.offset - second.offset;
      if (distance < first.bytes) return true;
    }
  }
  return false;
}

void Communicator::State::meet(const char* what) {
  rounds.signal();
  rounds.wait(what);
}

/// Nobody may change or free its data before all are done with it.
void Communicator::State::end_in_place(const char* what) {
  meet(what);
  drop_buffers_of_once();
}

void Communicator::State::drop_buffers_of_once() {
  for (auto [rank, slot] : shown_once) buffers.drop(rank, slot);
  shown_once.clear();
}

std::byte* Communicator::State::shown_by(int rank, Transfer transfer, const Region& own) {
  const Announcement& announced = rounds.announcement(rank);
  if (!shows(announced, rank)) return nullptr;
  if (transfer == Transfer::announced) return layout.stage(rank, rounds.last_stage());
  if (rank == me) return own.data;
  return buffers.find(rank, announced.buffer, announced.offset, announced.bytes);
}

void Communicator::State::find_sources(Transfer transfer, const Region& own) {
  for (int rank = 0; rank < world; ++rank) sources[std::size_t(rank)] = shown_by(rank, transfer, own);
}

void Communicator::State::all_reduce_staged(const Region& data, const ReduceKernel& kernel) {
  if (world > 2) return all_reduce_staged_in_parts(data, kernel);
  through_stages(
      "all_reduce", data.bytes, layout.chunk_bytes,
      [&](std::size_t begin, std::size_t bytes, std::byte* stage) { copy_bytes(stage, data.data + begin, bytes); },
      [&](std::size_t begin, std::size_t bytes, std::uint32_t stage) {
        // Its own data is still there: only the other's has to come from the other CPU.
        std::byte* own = data.data + begin;
        for (int rank = 0; rank < 2; ++rank) sources[std::size_t(rank)] = rank == me ? own : layout.stage(rank, stage);
        kernel(sources, std::span(&own, 1), bytes / kernel.element_size());
      });
}

/// For three ranks and more: each rank reduces its part of a chunk and all copy the parts, so the work for
/// a byte does not grow with the number of ranks. In every step a rank fills chunk t, reduces its part of
/// chunk t-1 in its own stage, and copies out chunk t-2.
void Communicator::State::all_reduce_staged_in_parts(const Region& data, const ReduceKernel& kernel) {
  const std::size_t step = layout.chunk_bytes;
  const std::size_t chunks = (data.bytes + step - 1) / step;
  auto size_of = [&](std::size_t chunk) { return std::min(step, data.bytes - chunk * step); };
  for (std::size_t t = 0; t < chunks + 2; ++t) {
    if (t < chunks) copy_bytes(layout.stage(me, rounds.next_stage()), data.data + t * step, size_of(t));
    if (t >= 1 && t - 1 < chunks) {
      const Part part(size_of(t - 1), world, me);
      for (int rank = 0; rank < world; ++rank)
        sources[std::size_t(rank)] = layout.stage(rank, rounds.last_stage()) + part.begin;
      std::byte* result = layout.stage(me, rounds.last_stage()) + part.begin;
      kernel(sources, std::span(&result, 1), part.size / kernel.element_size());
      SHOAL_KILL_POINT("group.part.reduced");
    }
    if (t >= 2) {
      for (int rank = 0; rank < world; ++rank) {
        const Part part(size_of(t - 2), world, rank);
        copy_bytes(data.data + (t - 2) * step + part.begin, layout.stage(rank, rounds.stage_before_last()) + part.begin,
                   part.size);
      }
    }
    if (t < chunks + 1) {
      rounds.signal();
      rounds.wait("all_reduce");
    }
  }
}

void Communicator::State::reduce_staged(const Region& data, const ReduceKernel& kernel, int root) {
  through_stages(
      "reduce", data.bytes, layout.chunk_bytes,
      [&](std::size_t begin, std::size_t bytes, std::byte* stage) { copy_bytes(stage, data.data + begin, bytes); },
      [&](std::size_t begin, std::size_t bytes, std::uint32_t stage) {
        if (me != root) return;
        for (int rank = 0; rank < world; ++rank) sources[std::size_t(rank)] = layout.stage(rank, stage);
        std::byte* result = data.data + begin;
        kernel(sources, std::span(&result, 1), bytes / kernel.element_size());
      });
}

void Communicator::State::broadcast_staged(const Region& data, int root) {
  through_stages(
      "broadcast", data.bytes, layout.chunk_bytes,
      [&](std::size_t begin, std::size_t bytes, std::byte* stage) {
        if (me == root) copy_bytes(stage, data.data + begin, bytes);
      },
      [&](std::size_t begin, std::size_t bytes, std::uint32_t stage) {
        if (me != root) copy_bytes(data.data + begin, layout.stage(root, stage), bytes);
      });
}

void Communicator::State::check_root(const char* what, int root) const {
  if (root < 0 || root >= world)
    throw std::invalid_argument(fmt::format("{}: root {} in a group of {} ranks", what, root, world));
}

void Communicator::State::check_outputs(const char* what, std::size_t outputs) const {
  if (outputs != std::size_t(world))
    throw std::invalid_argument(fmt::format("{}: {} outputs in a group of {} ranks", what, outputs, world));
}

}  // namespace shoal
