// All-reduce over hosts, piece by piece where it is large.
#include <fmt/format.h>
#include <shoal/internal/workers/train/reduce/reduce_kernel.h>
#include <shoal/internal/workers/train/two_level/two_level_state.h>
#include <shoal/ipc/trace_span.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace shoal {
namespace {

/// From here on an all-reduce goes piece by piece. A piece takes 30 ms at 1 Gbit/s and 0.3 at 100, and a host's part of it
/// about 1 ms.
constexpr std::size_t kPipelinedBytes = 8 << 20, kPieceBytes = 4 << 20;

}  // namespace

void check_elements(const char* what, std::size_t bytes, std::size_t size, c10::ScalarType type) {
  if (bytes % size != 0)
    throw std::invalid_argument(
        fmt::format("{}: {} bytes are no whole number of {}", what, bytes, c10::toString(type)));
}

/// Each host's sum on all its ranks; then each column reduces its share over the hosts; then the shares go to all. Of large
/// data, piece by piece: while one is on its way between the hosts, the ranks of a host sum the next one. Where an element
/// lies decides nothing about the order of its sum, so the bits are the same.
void TwoLevelGroup::all_reduce(Region data, Type type, ReduceOp op) {
  State& s = *state_;
  const ReduceKernel checked(type, op), kernel(type, summing(op));
  check_elements("all_reduce", data.bytes, kernel.element_size(), type);
  s.call({Collective::all_reduce, std::uint32_t(type), std::uint32_t(op), -1, data.bytes}, [&] {
    const std::size_t each = data.bytes < kPipelinedBytes ? std::max<std::size_t>(data.bytes, 1) : kPieceBytes;
    const std::size_t pieces = std::max<std::size_t>(1, (data.bytes + each - 1) / each);
    std::array<State::Passage, 2> passages;
    for (std::size_t piece = 0; piece <= pieces; ++piece) {
      if (piece < pieces) {
        const std::size_t begin = piece * each;
        const Region range{data.data + begin, std::min(each, data.bytes - begin), data.hold};
        if (s.local_ranks() > 1) s.host->all_reduce(range, type, summing(op));
        if (piece == 1) s.meet();  // before anything waits for one of another mind
        State::Passage& passage = passages[piece % 2];
        s.begin_passage(passage, range, std::uint32_t(piece));
      }
      if (piece == 0) {
        if (pieces == 1) s.meet();
        continue;
      }
      State::Passage& before = passages[(piece - 1) % 2];
      s.end_passage(before, kernel, [&](std::byte* sum, std::size_t bytes) { s.average(sum, bytes, type, op); });
    }
  });
}

/// Posts this rank's share of a range to the other hosts, and receives for theirs.
void TwoLevelGroup::State::begin_passage(Passage& passage, const Region& range, std::uint32_t number_of_piece) {
  piece = number_of_piece;
  passage.range = range;
  passage.piece = number_of_piece;
  passage.shares = columns_for(range.bytes);
  passage.share =
      in_column() && column_index < passage.shares ? Share(range.bytes, passage.shares, column_index) : Share(0, 1, 0);
  passage.direct = hosts() == 2 || passage.share.size <= kDirectBytes;
  passage.sources.clear();
  const int own = map.my_host();
  std::byte* const mine = range.data + passage.share.begin;
  for (int other = 0; other < hosts() && passage.share.size != 0; ++other) {
    const std::size_t bytes = passage.part_of(own, hosts()).size;
    if (other == own) {
      passage.sources.push_back(mine + passage.part_of(own, hosts()).begin);
      continue;
    }
    if (passage.rooms.size() < std::size_t(hosts())) passage.rooms.resize(std::size_t(hosts()));
    std::span<std::byte>& theirs = passage.rooms[std::size_t(other)];
    // The first piece is the largest, but a host's part of a smaller one may be larger: shares are whole cache lines.
    if (theirs.size() < bytes) theirs = {scratch(bytes), bytes};
    passage.sources.push_back(theirs.data());
    receive(other, theirs.data(), bytes, 1);
    send(other, mine + passage.part_of(other, hosts()).begin, passage.part_of(other, hosts()).size, 1);
  }
  if (number_of_piece == 0) send_notes();
  // The first piece's messages are meet()'s to wait for, which knows whether the hosts agree.
  if (number_of_piece != 0) {
    posted_pieces[number_of_piece % 2] = std::move(posted);
    posted.clear();
  }
}

/// Waits for the other hosts' shares, sums them in the order of hosts, and brings the sums to all ranks of this one.
template <class Average>
void TwoLevelGroup::State::end_passage(Passage& passage, const ReduceKernel& kernel, Average average_of) {
  piece = passage.piece;
  std::vector<Posted>& messages = posted_pieces[passage.piece % 2];
  if (!messages.empty()) {
    const TraceSpan span("columns");
    for (const Posted& message : messages) wait_for(message.pending);
    messages.clear();
  }
  const int own = map.my_host();
  if (passage.share.size != 0) {
    std::byte* const mine = passage.range.data + passage.share.begin;
    const Share part = passage.part_of(own, hosts());
    reduce_hosts(kernel, passage.sources, mine + part.begin, part.size);
    average_of(mine + part.begin, part.size);
    for (int other = 0; other < hosts() && !passage.direct; ++other) {
      if (other == own) continue;
      receive(other, mine + passage.part_of(other, hosts()).begin, passage.part_of(other, hosts()).size, 2);
      send(other, mine + part.begin, part.size, 2);
    }
    finish();
  }
  spread(passage.range, passage.shares);
}

}  // namespace shoal
