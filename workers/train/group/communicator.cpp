#include <shoal/workers/train/communicator.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/internal/workers/train/group/peer_buffers.h>
#include <shoal/internal/workers/train/group/rounds.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/trace_span.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {
namespace {

constexpr std::uint32_t kNone = ~0u;
constexpr std::size_t kLine = 64;

/// Up to here private data goes along with its announcement: one round, and two copies that stay in the
/// caches. Data in the heap is faster where it is, in two rounds, unless it is next to nothing.
constexpr std::size_t kSmallBytes = 4 << 10;
constexpr std::size_t kTinyBytes = 512;

constexpr const char* kNames[] = {
    "all_reduce", "broadcast", "all_gather",        "reduce_scatter", "reduce",           "gather",
    "scatter",    "barrier",   "all_gather_object", "gather_object",  "broadcast_object", "scatter_object"};

/// What a rank tells the others of its value before it sends it, in its stage of the first round.
struct ValueNote {
  std::uint64_t schema;
  std::uint32_t failed;  // 1: it cannot be encoded, and `text` is why; otherwise `text` is the type
  std::uint32_t length;
  char text[1008];

  void say(std::string_view what) {
    length = std::uint32_t(std::min(what.size(), sizeof text));
    std::memcpy(text, what.data(), length);
  }
  std::string_view said() const { return {text, std::min<std::size_t>(length, sizeof text)}; }
};
static_assert(std::is_trivially_copyable_v<ValueNote> && sizeof(ValueNote) <= kSmallBytes);

bool is_of_values(Collective what) { return what >= Collective::all_gather_object; }

std::string describe(const Announcement& announced) {
  std::string text = std::uint32_t(announced.what) < std::size(kNames) ? kNames[int(announced.what)] : "?";
  if (is_of_values(announced.what))
    return text + (announced.root >= 0 ? fmt::format("(root {})", announced.root) : "()");
  text += fmt::format("({} bytes", announced.bytes);
  const auto type = c10::ScalarType(announced.type);
  if (announced.op <= std::uint32_t(ReduceOp::bit_xor))
    text += fmt::format(", {} of {}", name_of(ReduceOp(announced.op)), c10::toString(type));
  else if (announced.type < std::uint32_t(c10::ScalarType::Undefined))
    text += fmt::format(" of {}", c10::toString(type));
  if (announced.root >= 0) text += fmt::format(", root {}", announced.root);
  return text + ")";
}

/// The bytes of one rank's share of `total`: whole cache lines, so that two ranks never write to one.
struct Part {
  std::size_t begin, size;
  Part(std::size_t total, int world, int rank) {
    std::size_t each = (total + std::size_t(world) - 1) / std::size_t(world);
    each = (each + kLine - 1) / kLine * kLine;
    begin = std::min(total, each * std::size_t(rank));
    size = std::min(each, total - begin);
  }
};

bool same(const Announcement& a, const Announcement& b) {
  return a.what == b.what && a.type == b.type && a.op == b.op && a.root == b.root && a.bytes == b.bytes;
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

struct Communicator::State {
  State(std::shared_ptr<ShmGroup::Parts> group, GroupLayout& shared, int rank)
      : parts(std::move(group)),
        layout(shared),
        rounds(shared, rank),
        buffers(rounds, parts->inboxes),
        me(rank),
        world(rounds.world_size()),
        sources(std::size_t(world)),
        destinations(std::size_t(world)) {}

  /// How the data of a collective gets from rank to rank.
  enum class Way {
    announced,  // it lies in the stages of the round that announced it
    in_place,   // everybody's lies in the heap: to be read, and perhaps written, where it is
    staged,     // chunk by chunk through the stages
    apart,  // staged, from copies: what ranks are to change overlaps, and none may change it before all have read it
  };

  Way begin(Announcement announcement, const Region& shown);
  /// Ends a round and waits for it.
  void meet(const char* what);
  void end_in_place(const char* what);
  bool data_overlaps() const;
  void drop_buffers_of_once();
  void check_root(const char* what, int root) const;
  void check_outputs(const char* what, std::size_t outputs) const;

  /// Whether this rank's data is something that others read.
  bool shows(const Announcement& announcement, int rank) const {
    bool from_root = announcement.what == Collective::broadcast || announcement.what == Collective::scatter;
    return !from_root || announcement.root == rank;
  }
  /// Whether the collective changes the data that it is given.
  static bool changes_data(Collective what) {
    return what == Collective::all_reduce || what == Collective::reduce || what == Collective::broadcast;
  }
  /// Where rank's shown data starts, for Way::announced and Way::in_place. Null where it shows none.
  std::byte* shown_by(int rank, Way way, const Region& own);
  void find_sources(Way way, const Region& own);

  template <class Fill, class Consume>
  void through_stages(const char* what, std::size_t total, std::size_t step, Fill fill, Consume consume);
  template <class Staged>
  void do_apart(const char* what, const Region& data, bool changes, Staged staged);
  void all_reduce_staged(const Region& data, const ReduceKernel& kernel);
  void all_reduce_staged_in_parts(const Region& data, const ReduceKernel& kernel);
  void reduce_staged(const Region& data, const ReduceKernel& kernel, int root);
  void broadcast_staged(const Region& data, int root);
  void compare_notes(const ObjectExchange& exchange, std::exception_ptr own_failure);
  void collect(const Announcement& announcement, const Region& input, std::span<std::byte* const> outputs);

  std::shared_ptr<ShmGroup::Parts> parts;
  GroupLayout& layout;
  Rounds rounds;
  PeerBuffers buffers;
  int me;
  int world;
  std::vector<const std::byte*> sources;  // one a rank; kept, so that a collective allocates nothing
  std::vector<std::byte*> destinations;
  std::vector<std::pair<int, std::uint32_t>> shown_once;  // rank and slot, of the collective that is going on
};

Communicator ShmGroup::join(int rank) const {
  if (rank < 0 || rank >= world_size())
    throw std::invalid_argument(
        fmt::format("rank {} of a group of {}: ranks go from 0 to {}", rank, world_size(), world_size() - 1));
  return Communicator(std::make_unique<Communicator::State>(parts_, layout(), rank));
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const { return state_->me; }
int Communicator::world_size() const { return state_->world; }
void Communicator::set_timeout(std::chrono::nanoseconds timeout) { state_->rounds.set_timeout(timeout); }

// ---------------------------------------------------------------- the steps

/// Every collective starts here, with exactly one round. So where ranks disagree, all have done the
/// same number of rounds when they find out.
Communicator::State::Way Communicator::State::begin(Announcement announcement, const Region& shown) {
  const char* what = kNames[int(announcement.what)];
  rounds.check_usable();
  const bool small = announcement.bytes <= kSmallBytes, tiny = announcement.bytes <= kTinyBytes;
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
  int other_mind = -1;
  for (int rank = 0; rank < world; ++rank) {
    const Announcement& theirs = rounds.announcement(rank);
    if (rank != me) buffers.read_letters(rank, theirs.letters);
    if (theirs.once != 0) shown_once.emplace_back(rank, theirs.buffer);
    if (!same(theirs, announcement)) other_mind = rank;
    if (shows(theirs, rank)) (theirs.buffer == Announcement::kPrivate ? some_private : some_in_heap) = true;
  }
  Way way = Way::staged;
  if (small && !some_in_heap)
    way = Way::announced;
  else if (other_mind < 0 && data_overlaps())
    way = Way::apart;
  else if (!some_private || world == 1)
    way = Way::in_place;
  if (way != Way::in_place || other_mind >= 0) drop_buffers_of_once();
  if (other_mind >= 0)
    throw std::invalid_argument(fmt::format(
        "rank {} called {} where rank {} called {}: all ranks have to call the same collectives in the same order", me,
        describe(announcement), other_mind, describe(rounds.announcement(other_mind))));
  return way;
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

std::byte* Communicator::State::shown_by(int rank, Way way, const Region& own) {
  const Announcement& announced = rounds.announcement(rank);
  if (!shows(announced, rank)) return nullptr;
  if (way == Way::announced) return layout.stage(rank, rounds.last_stage());
  if (rank == me) return own.data;
  return buffers.find(rank, announced.buffer, announced.offset, announced.bytes);
}

void Communicator::State::find_sources(Way way, const Region& own) {
  for (int rank = 0; rank < world; ++rank) sources[std::size_t(rank)] = shown_by(rank, way, own);
}

/// Moves `total` bytes of each rank, `step` at a time: fill(begin, size, stage) writes this rank's,
/// consume(begin, size, stage) reads everybody's from the stages of this number. The next chunk is
/// filled while the others are still at this one: a third stage makes that safe.
template <class Fill, class Consume>
void Communicator::State::through_stages(const char* what, std::size_t total, std::size_t step, Fill fill,
                                         Consume consume) {
  auto size_at = [&](std::size_t begin) { return std::min(step, total - begin); };
  fill(std::size_t(0), size_at(0), layout.stage(me, rounds.next_stage()));
  rounds.signal();
  for (std::size_t begin = 0; begin < total; begin += step) {
    const std::uint32_t stage = rounds.last_stage();
    const std::size_t next = begin + step;
    if (next < total) fill(next, size_at(next), layout.stage(me, rounds.next_stage()));
    rounds.wait(what);
    consume(begin, size_at(begin), stage);
    if (next < total) rounds.signal();
  }
}

/// Does the collective on a copy of this rank's data. All have theirs before anybody changes anything; and where
/// `changes` says that a rank has a result to bring back, it does so in its turn: what overlaps is left as the last one
/// wrote it.
template <class Staged>
void Communicator::State::do_apart(const char* what, const Region& data, bool changes, Staged staged) {
  std::vector<std::byte> copy(data.data, data.data + data.bytes);
  meet(what);
  staged(Region{copy.data(), copy.size(), nullptr});
  for (int rank = 0; rank < world; ++rank) {
    if (rank == me && changes) copy_bytes(data.data, copy.data(), copy.size());
    meet(what);
  }
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

// ---------------------------------------------------------------- the collectives

void Communicator::all_reduce(Region data, c10::ScalarType type, ReduceOp op) {
  const TraceSpan span("all_reduce", data.bytes);
  State& s = *state_;
  const ReduceKernel kernel(type, op);
  const std::size_t size = kernel.element_size();
  if (data.bytes % size != 0)
    throw std::invalid_argument(
        fmt::format("all_reduce: {} bytes are no whole number of {}", data.bytes, c10::toString(type)));
  auto way = s.begin(
      {Collective::all_reduce, std::uint32_t(type), std::uint32_t(op), -1, data.bytes, 0, 0, 0, 0, 0, {}}, data);
  if (way == State::Way::announced) {
    s.find_sources(way, data);
    kernel(s.sources, std::span(&data.data, 1), data.bytes / size);
  } else if (way == State::Way::in_place) {
    // Each rank reduces its part and writes it to all: every byte is read and written once, the least
    // there is.
    const Part part(data.bytes, s.world, s.me);
    for (int rank = 0; rank < s.world; ++rank) {
      s.destinations[std::size_t(rank)] = s.shown_by(rank, way, data) + part.begin;
      s.sources[std::size_t(rank)] = s.destinations[std::size_t(rank)];
    }
    SHOAL_KILL_POINT("group.in_place.before");
    kernel(s.sources, s.destinations, part.size / size);
    SHOAL_KILL_POINT("group.in_place.after");
    s.end_in_place("all_reduce");
  } else if (way == State::Way::apart) {
    s.do_apart("all_reduce", data, true, [&](const Region& copy) { s.all_reduce_staged(copy, kernel); });
  } else {
    s.all_reduce_staged(data, kernel);
  }
}

void Communicator::reduce(Region data, c10::ScalarType type, ReduceOp op, int root) {
  const TraceSpan span("reduce", data.bytes);
  State& s = *state_;
  s.check_root("reduce", root);
  const ReduceKernel kernel(type, op);
  const std::size_t size = kernel.element_size();
  if (data.bytes % size != 0)
    throw std::invalid_argument(
        fmt::format("reduce: {} bytes are no whole number of {}", data.bytes, c10::toString(type)));
  auto way =
      s.begin({Collective::reduce, std::uint32_t(type), std::uint32_t(op), root, data.bytes, 0, 0, 0, 0, 0, {}}, data);
  if (way == State::Way::apart)
    return s.do_apart("reduce", data, s.me == root, [&](const Region& copy) { s.reduce_staged(copy, kernel, root); });
  if (way == State::Way::staged) return s.reduce_staged(data, kernel, root);
  if (s.me == root) {
    s.find_sources(way, data);
    kernel(s.sources, std::span(&data.data, 1), data.bytes / size);
  }
  if (way == State::Way::in_place) s.end_in_place("reduce");
}

void Communicator::broadcast(Region data, int root, Type type) {
  const TraceSpan span("broadcast", data.bytes);
  State& s = *state_;
  s.check_root("broadcast", root);
  auto way = s.begin({Collective::broadcast, std::uint32_t(type), kNone, root, data.bytes, 0, 0, 0, 0, 0, {}}, data);
  if (way == State::Way::apart)
    return s.do_apart("broadcast", data, s.me != root, [&](const Region& copy) { s.broadcast_staged(copy, root); });
  if (way == State::Way::staged) return s.broadcast_staged(data, root);
  if (s.me != root) copy_bytes(data.data, s.shown_by(root, way, data), data.bytes);
  if (way == State::Way::in_place) s.end_in_place("broadcast");
}

void Communicator::all_gather(Region input, std::span<std::byte* const> outputs, Type type) {
  const TraceSpan span("all_gather", input.bytes);
  state_->check_outputs("all_gather", outputs.size());
  state_->collect({Collective::all_gather, std::uint32_t(type), kNone, -1, input.bytes, 0, 0, 0, 0, 0, {}}, input,
                  outputs);
}

void Communicator::gather(Region input, std::span<std::byte* const> outputs, int root, Type type) {
  const TraceSpan span("gather", input.bytes);
  state_->check_root("gather", root);
  if (rank() == root) state_->check_outputs("gather", outputs.size());
  state_->collect({Collective::gather, std::uint32_t(type), kNone, root, input.bytes, 0, 0, 0, 0, 0, {}}, input,
                  rank() == root ? outputs : std::span<std::byte* const>());
}

void Communicator::State::collect(const Announcement& announcement, const Region& input,
                                  std::span<std::byte* const> outputs) {
  const char* what = kNames[int(announcement.what)];
  auto way = begin(announcement, input);
  if (way == Way::staged) {
    through_stages(
        what, input.bytes, layout.chunk_bytes,
        [&](std::size_t at, std::size_t bytes, std::byte* stage) { copy_bytes(stage, input.data + at, bytes); },
        [&](std::size_t at, std::size_t bytes, std::uint32_t stage) {
          for (std::size_t rank = 0; rank < outputs.size(); ++rank)
            copy_bytes(outputs[rank] + at, int(rank) == me ? input.data + at : layout.stage(int(rank), stage), bytes);
        });
    return;
  }
  for (std::size_t rank = 0; rank < outputs.size(); ++rank)
    copy_bytes(outputs[rank], int(rank) == me ? input.data : shown_by(int(rank), way, input), input.bytes);
  if (way == Way::in_place) end_in_place(what);
}

void Communicator::reduce_scatter(Region input, std::byte* output, c10::ScalarType type, ReduceOp op) {
  const TraceSpan span("reduce_scatter", input.bytes);
  State& s = *state_;
  const ReduceKernel kernel(type, op);
  const std::size_t size = kernel.element_size(), world = std::size_t(s.world), part = input.bytes / world;
  if (input.bytes % (size * world) != 0)
    throw std::invalid_argument(fmt::format("reduce_scatter: {} bytes are not {} equal parts of whole {}", input.bytes,
                                            world, c10::toString(type)));
  auto way = s.begin(
      {Collective::reduce_scatter, std::uint32_t(type), std::uint32_t(op), -1, input.bytes, 0, 0, 0, 0, 0, {}}, input);
  if (way == State::Way::staged) {
    // A stage holds a piece of every part, so that all ranks have work in every round.
    const std::size_t step = s.layout.chunk_bytes / world / kLine * kLine;
    s.through_stages(
        "reduce_scatter", part, step,
        [&](std::size_t begin, std::size_t bytes, std::byte* stage) {
          for (std::size_t rank = 0; rank < world; ++rank)
            copy_bytes(stage + rank * step, input.data + rank * part + begin, bytes);
        },
        [&](std::size_t begin, std::size_t bytes, std::uint32_t stage) {
          for (int rank = 0; rank < s.world; ++rank)
            s.sources[std::size_t(rank)] = s.layout.stage(rank, stage) + std::size_t(s.me) * step;
          std::byte* result = output + begin;
          kernel(s.sources, std::span(&result, 1), bytes / size);
        });
    return;
  }
  s.find_sources(way, input);
  for (auto& source : s.sources) source += std::size_t(s.me) * part;
  kernel(s.sources, std::span(&output, 1), part / size);
  if (way == State::Way::in_place) s.end_in_place("reduce_scatter");
}

void Communicator::scatter(Region input, std::byte* output, std::size_t part_bytes, int root, Type type) {
  const TraceSpan span("scatter", part_bytes);
  State& s = *state_;
  s.check_root("scatter", root);
  const std::size_t world = std::size_t(s.world);
  if (s.me == root && input.bytes != part_bytes * world)
    throw std::invalid_argument(
        fmt::format("scatter: {} bytes are not {} parts of {} bytes", input.bytes, world, part_bytes));
  auto way =
      s.begin({Collective::scatter, std::uint32_t(type), kNone, root, part_bytes * world, 0, 0, 0, 0, 0, {}}, input);
  if (way == State::Way::staged) {
    const std::size_t step = s.layout.chunk_bytes / world / kLine * kLine;
    s.through_stages(
        "scatter", part_bytes, step,
        [&](std::size_t begin, std::size_t bytes, std::byte* stage) {
          for (std::size_t rank = 0; rank < world && s.me == root; ++rank)
            copy_bytes(stage + rank * step, input.data + rank * part_bytes + begin, bytes);
        },
        [&](std::size_t begin, std::size_t bytes, std::uint32_t stage) {
          copy_bytes(output + begin, s.layout.stage(root, stage) + std::size_t(s.me) * step, bytes);
        });
    return;
  }
  copy_bytes(output, s.shown_by(root, way, input) + std::size_t(s.me) * part_bytes, part_bytes);
  if (way == State::Way::in_place) s.end_in_place("scatter");
}

void Communicator::barrier() {
  const TraceSpan span("barrier");
  state_->begin({Collective::barrier, kNone, kNone, -1, 0, 0, 0, 0, 0, 0, {}}, {});
}

/// All ranks come to the same, since all read the same notes.
void Communicator::State::compare_notes(const ObjectExchange& exchange, std::exception_ptr own_failure) {
  const char* what = kNames[int(exchange.what)];
  auto note_of = [&](int rank) { return reinterpret_cast<const ValueNote*>(layout.stage(rank, rounds.last_stage())); };
  int other_type = -1, failed = -1;
  for (int rank = world - 1; rank >= 0; --rank) {
    const ValueNote& note = *note_of(rank);
    if (note.failed != 0) failed = rank;
    if (note.schema != exchange.schema) other_type = rank;
  }
  if (other_type >= 0) {
    const ValueNote& note = *note_of(other_type);
    throw std::invalid_argument(
        fmt::format("rank {} called {} of {} where rank {} called it of {}: all ranks have to give values of one type",
                    me, what, exchange.type, other_type, note.failed != 0 ? "another type" : note.said()));
  }
  if (own_failure) std::rethrow_exception(own_failure);
  if (failed >= 0)
    throw Error(
        fmt::format("{}: rank {} could not send its {}: {}", what, failed, exchange.type, note_of(failed)->said()));
}

/// One round for the notes, by which all know that all can send, and another for the messages. So nobody's exception
/// leaves the others waiting, nor a message in an inbox.
void Communicator::exchange(const ObjectExchange& exchange) {
  State& s = *state_;
  const char* what = kNames[int(exchange.what)];
  const TraceSpan span(what);
  if (exchange.root != -1) s.check_root(what, exchange.root);
  s.rounds.check_usable();
  auto goes = [&](int from, int to) {
    switch (exchange.what) {
      case Collective::gather_object:
        return to == exchange.root;
      case Collective::broadcast_object:
        return from == exchange.root && to != from;
      case Collective::scatter_object:
        return from == exchange.root;
      default:
        return true;
    }
  };
  std::vector<std::unique_ptr<Encoder>> messages(std::size_t(s.world));
  std::exception_ptr failure;
  ValueNote note{exchange.schema, 0, 0, {}};
  note.say(exchange.type);
  auto fail = [&](std::string_view why) {
    failure = std::current_exception();
    note.failed = 1;
    note.say(why);
  };
  try {
    for (int to = 0; to < s.world; ++to) {
      if (!goes(s.me, to)) continue;
      auto& message = messages[std::size_t(to)] = std::make_unique<Encoder>();
      s.buffers.begin_value(*message);
      exchange.encode(*message, to);
      // Now, when what keeps it from being sent is still everybody's error.
      if (message->handles().size() > UINT16_MAX)
        throw std::invalid_argument(fmt::format("a value with {} handles (tensors, queues, ...): at most {} fit",
                                                message->handles().size(), UINT16_MAX));
      if (message->total() > RingCell::kInlineBytes) message->in_block();
    }
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception that is no std::exception");
  }
  s.begin({exchange.what, kNone, kNone, exchange.root, sizeof note, 0, 0, 0, 0, 0, {}},
          {reinterpret_cast<std::byte*>(&note), sizeof note, nullptr});
  s.compare_notes(exchange, failure);
  for (int to = 0; to < s.world; ++to)
    if (messages[std::size_t(to)]) s.buffers.send_value(to, *messages[std::size_t(to)]);
  s.meet(what);
  // All are taken before any is read: what cannot be read is this rank's error alone, and the group goes on.
  std::vector<PeerBuffers::Value> values(std::size_t(s.world));
  for (int from = 0; from < s.world; ++from)
    if (goes(from, s.me)) values[std::size_t(from)] = s.buffers.take_value(from);
  for (int from = 0; from < s.world; ++from)
    if (auto& value = values[std::size_t(from)]; value.message) exchange.decode(*value.decoder, from);
}

}  // namespace shoal
