// All-to-all: how much goes from whom to whom in the first round, the parts themselves in the next ones.
#include <fmt/format.h>
#include <shoal/internal/workers/train/group/communicator_state.h>
#include <shoal/ipc/trace_span.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace shoal {
namespace {

/// What every rank says in the first round: what it sends to each rank, then what it expects from each.
class Sizes {
 public:
  explicit Sizes(std::size_t world) : world_(world), all_(world * world * 2) {}

  std::uint64_t* row(std::size_t rank) { return all_.data() + rank * world_ * 2; }
  std::size_t row_bytes() const { return world_ * 2 * sizeof(std::uint64_t); }
  std::uint64_t sent(std::size_t from, std::size_t to) const { return all_[from * world_ * 2 + to]; }
  std::uint64_t expected(std::size_t from, std::size_t to) const { return all_[to * world_ * 2 + world_ + from]; }
  /// Where the part for `to` begins in the input of `from`.
  std::uint64_t begin(std::size_t from, std::size_t to) const {
    const auto first = all_.begin() + std::ptrdiff_t(from * world_ * 2);
    return std::accumulate(first, first + std::ptrdiff_t(to), std::uint64_t(0));
  }
  std::uint64_t input(std::size_t from) const { return begin(from, world_); }

  std::uint64_t most_input() const {
    std::uint64_t most = 0;
    for (std::size_t rank = 0; rank < world_; ++rank) most = std::max(most, input(rank));
    return most;
  }
  /// Of those that go to another rank.
  std::uint64_t longest_part() const {
    std::uint64_t most = 0;
    for (std::size_t from = 0; from < world_; ++from)
      for (std::size_t to = 0; to < world_; ++to)
        if (from != to) most = std::max(most, sent(from, to));
    return most;
  }
  /// All ranks come to the same, since all have the same sizes.
  void check() const {
    for (std::size_t from = 0; from < world_; ++from)
      for (std::size_t to = 0; to < world_; ++to)
        if (sent(from, to) != expected(from, to))
          throw CollectiveMismatch(fmt::format("all_to_all: rank {} sends {} bytes to rank {}, which expects {}", from,
                                               sent(from, to), to, expected(from, to)));
  }

 private:
  std::size_t world_;
  std::vector<std::uint64_t> all_;
};

/// Up to here a rank's input goes along with its sizes, behind them: a copy in the caches costs less than a round.
constexpr std::uint64_t kAlong = 16 << 10;

std::size_t sum(std::span<const std::size_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t(0));
}

/// What makes no sense whatever the other ranks give; empty if nothing does.
std::string fault_in(const Region& input, std::span<const std::size_t> input_bytes, const std::byte* output,
                     std::span<const std::size_t> output_bytes, std::size_t world) {
  for (auto sizes : {input_bytes, output_bytes})
    if (sizes.size() != world) return fmt::format("all_to_all: {} sizes in a group of {} ranks", sizes.size(), world);
  if (sum(input_bytes) != input.bytes)
    return fmt::format("all_to_all: an input of {} bytes, with parts of {} in all", input.bytes, sum(input_bytes));
  const std::size_t result = sum(output_bytes);
  const std::less<> before;
  if (result != 0 && input.bytes != 0 && before(output, input.data + input.bytes) &&
      before(input.data, output + result))
    return "all_to_all: the output overlaps the input: give it memory of its own";
  return {};
}

}  // namespace

void Communicator::all_to_all(Region input, std::span<const std::size_t> input_bytes, std::byte* output,
                              std::span<const std::size_t> output_bytes, Type type) {
  static_assert(std::size_t(GroupLayout::kLargestWorld) * 2 * sizeof(std::uint64_t) <=
                State::kSmallBytes);  // go with the announcement
  const TraceSpan span("all_to_all", input.bytes);
  const Flight flight(state_->recorder);
  State& s = *state_;
  const std::size_t world = std::size_t(s.world), me = std::size_t(s.me);
  if (const std::string why = fault_in(input, input_bytes, output, output_bytes, world); !why.empty())
    refuse(Collective::all_to_all, why);

  Sizes sizes(world);
  std::ranges::copy(input_bytes, sizes.row(me));
  std::ranges::copy(output_bytes, sizes.row(me) + world);
  const std::uint64_t along = std::min(kAlong, s.layout.chunk_bytes - sizes.row_bytes());
  if (input.bytes <= along) {
    s.rounds.check_usable();  // the stage is this rank's to fill from then on
    State::copy_bytes(s.layout.stage(s.me, s.rounds.next_stage()) + sizes.row_bytes(), input.data, input.bytes);
  }
  s.begin({Collective::all_to_all, std::uint32_t(type), State::kNone, -1, sizes.row_bytes()},
          {reinterpret_cast<std::byte*>(sizes.row(me)), sizes.row_bytes(), nullptr});
  for (std::size_t rank = 0; rank < world; ++rank)
    if (rank != me)
      State::copy_bytes(reinterpret_cast<std::byte*>(sizes.row(rank)), s.layout.stage(int(rank), s.rounds.last_stage()),
                        sizes.row_bytes());
  sizes.check();
  std::vector<std::byte*> to(world);
  for (std::size_t rank = 0, at = 0; rank < world; at += output_bytes[rank++]) to[rank] = output + at;
  const std::byte* own = input.data + sizes.begin(me, me);
  const std::uint64_t longest = sizes.longest_part();
  if (sizes.most_input() <= along) {  // all parts came along with the sizes
    for (std::size_t rank = 0; rank < world; ++rank)
      State::copy_bytes(
          to[rank],
          rank == me ? own
                     : s.layout.stage(int(rank), s.rounds.last_stage()) + sizes.row_bytes() + sizes.begin(rank, me),
          output_bytes[rank]);
    return;
  }
  if (longest == 0) return State::copy_bytes(to[me], own, output_bytes[me]);  // nobody sends to another
  const auto transfer = s.begin({Collective::all_to_all_parts, std::uint32_t(type), State::kNone, -1, input.bytes},
                                input, sizes.most_input());
  if (transfer == State::Transfer::staged) {
    // A stage holds a piece of every part, as in reduce_scatter. This rank's own part needs none.
    const std::size_t step = s.layout.chunk_bytes / world / State::kLine * State::kLine;
    const auto piece = [](std::uint64_t part, std::size_t begin, std::size_t bytes) {
      return part <= begin ? 0 : std::min<std::size_t>(bytes, part - begin);
    };
    s.through_stages(
        "all_to_all", longest, step,
        [&](std::size_t begin, std::size_t bytes, std::byte* stage) {
          for (std::size_t rank = 0, at = 0; rank < world; at += input_bytes[rank++])
            if (rank != me)
              State::copy_bytes(stage + rank * step, input.data + at + begin, piece(input_bytes[rank], begin, bytes));
        },
        [&](std::size_t begin, std::size_t bytes, std::uint32_t stage) {
          for (std::size_t rank = 0; rank < world; ++rank)
            if (rank != me)
              State::copy_bytes(to[rank] + begin, s.layout.stage(int(rank), stage) + me * step,
                                piece(output_bytes[rank], begin, bytes));
        });
    State::copy_bytes(to[me], own, output_bytes[me]);
    return;
  }
  for (std::size_t rank = 0; rank < world; ++rank)
    State::copy_bytes(
        to[rank],
        rank == me || output_bytes[rank] == 0 ? own : s.shown_by(int(rank), transfer, input) + sizes.begin(rank, me),
        output_bytes[rank]);
  if (transfer == State::Transfer::in_place) s.end_in_place("all_to_all");
}

}  // namespace shoal
