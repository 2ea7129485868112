#include <shoal/internal/workers/train/two_level/two_level.h>

#include <fmt/format.h>
#include <shoal/internal/workers/train/hosts/host_mail.h>
#include <shoal/internal/workers/train/reduce/reduce_kernel.h>
#include <shoal/internal/workers/train/two_level/two_level_state.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace shoal {
namespace {

std::byte* append(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
  return to + bytes;
}

}  // namespace

TwoLevelGroup::TwoLevelGroup(Parts parts) : state_(std::make_unique<State>(std::move(parts))) {}
TwoLevelGroup::~TwoLevelGroup() = default;

const HostMap& TwoLevelGroup::map() const { return state_->map; }

double TwoLevelGroup::cpu_share() const {
  std::lock_guard lock(state_->in_call);
  return state_->host ? state_->host->cpu_share() : 0;
}

void TwoLevelGroup::set_timeout(std::chrono::nanoseconds timeout) {
  std::lock_guard lock(state_->in_call);
  state_->timeout = timeout;
}

void TwoLevelGroup::abort() {
  state_->watch->report({Failure::aborted, state_->map.describe(state_->map.me) + " has aborted the group"}, true);
}

/// As all_reduce up to the columns, where all send to root's host.
void TwoLevelGroup::reduce(Region data, Type type, ReduceOp op, int root) {
  State& s = *state_;
  s.check_root("reduce", root);
  const ReduceKernel checked(type, op), kernel(type, summing(op));
  check_elements("reduce", data.bytes, kernel.element_size(), type);
  s.call({Collective::reduce, std::uint32_t(type), std::uint32_t(op), root, data.bytes}, [&] {
    std::byte* const sum = s.scratch(data.bytes);
    append(sum, data.data, data.bytes);
    if (s.local_ranks() > 1) s.host->all_reduce({sum, data.bytes, nullptr}, type, summing(op));
    const auto [root_host, root_local] = s.map.places[std::size_t(root)];
    const int shares = s.columns_for(data.bytes), own = s.map.my_host();
    const State::Share share = s.in_column() && s.column_index < shares
                                   ? State::Share(data.bytes, shares, s.column_index)
                                   : State::Share(0, 1, 0);
    std::vector<const std::byte*> sources;
    if (share.size != 0 && own != root_host) s.send(root_host, sum + share.begin, share.size, 1);
    if (share.size != 0 && own == root_host)
      for (int host = 0; host < s.hosts(); ++host) {
        std::byte* theirs = host == own ? sum + share.begin : s.scratch(share.size);
        sources.push_back(theirs);
        if (host != own) s.receive(host, theirs, share.size, 1);
      }
    s.meet();
    if (own != root_host) return;
    if (share.size != 0) {
      s.reduce_hosts(kernel, sources, sum + share.begin, share.size);
      s.average(sum + share.begin, share.size, type, op);
    }
    if (s.local_ranks() == 1) {
      append(data.data, sum, data.bytes);
      return;
    }
    std::vector<std::size_t> sizes(std::size_t(s.columns), 0);
    for (int column = 0; column < shares; ++column)
      sizes[std::size_t(column)] = State::Share(data.bytes, shares, column).size;
    s.deliver_to(root_local, sum + share.begin, sizes, data.data);
  });
}

/// Within root's host; then each column sends its share to the other hosts, a piece to each, which they give to one
/// another; then the shares go to all.
void TwoLevelGroup::broadcast(Region data, int root, Type type) {
  State& s = *state_;
  s.check_root("broadcast", root);
  s.call({Collective::broadcast, std::uint32_t(type), ~0u, root, data.bytes}, [&] {
    const auto [root_host, root_local] = s.map.places[std::size_t(root)];
    const int shares = s.columns_for(data.bytes), hosts = s.hosts(), own = s.map.my_host();
    if (own == root_host && s.local_ranks() > 1) s.host->broadcast(data, root_local, type);
    const State::Share share = s.in_column() && s.column_index < shares
                                   ? State::Share(data.bytes, shares, s.column_index)
                                   : State::Share(0, 1, 0);
    const bool direct = hosts == 2 || share.size <= kDirectBytes;
    std::byte* const mine = data.data + share.begin;
    auto piece = [&](int host) {
      return direct ? State::Share(share.size, 1, 0) : State::Share(share.size, hosts, host);
    };
    if (own == root_host)
      for (int host = 0; host < hosts && share.size != 0; ++host) {
        if (host != own) s.send(host, mine + piece(host).begin, piece(host).size, 1);
      }
    else if (share.size != 0)
      s.receive(root_host, mine + piece(own).begin, piece(own).size, 1);
    s.meet();
    if (!direct && share.size != 0) {
      for (int host = 0; host < hosts; ++host) {
        if (host == own) continue;
        if (host != root_host) s.send(host, mine + piece(own).begin, piece(own).size, 2);
        if (own != root_host) s.receive(host, mine + piece(host).begin, piece(host).size, 2);
      }
      s.finish();
    }
    if (own != root_host) s.spread(data, shares);
  });
}

void TwoLevelGroup::all_gather(Region input, std::span<std::byte* const> outputs, Type type) {
  State& s = *state_;
  if (outputs.size() != std::size_t(s.map.world_size()))
    throw std::invalid_argument(
        fmt::format("all_gather: {} outputs in a group of {} ranks", outputs.size(), s.map.world_size()));
  s.call({Collective::all_gather, std::uint32_t(type), ~0u, -1, input.bytes},
         [&] { s.all_gather_now(input, outputs, type); });
}

/// Within the host; then each column sends what it carries of this host to all others; then each gives what it got to
/// its host.
void TwoLevelGroup::State::all_gather_now(const Region& input, std::span<std::byte* const> outputs, Type type) {
  const int own = map.my_host();
  const std::size_t part = input.bytes;
  std::vector<std::byte*> here;
  here.reserve(std::size_t(local_ranks()));
  for (int local = 0; local < local_ranks(); ++local) here.push_back(outputs[std::size_t(map.rank_at(own, local))]);
  if (local_ranks() > 1)
    host->all_gather(input, here, type);
  else if (here[0] != input.data)
    append(here[0], input.data, part);
  std::vector<std::byte*> arrived;  // by column
  arrived.reserve(std::size_t(columns));
  for (int index = 0; index < columns; ++index) arrived.push_back(scratch(carried_elsewhere(index) * part));
  if (in_column()) {
    const std::vector<int> carried = map.carried(own, column_index);
    const std::byte* packed = outputs[std::size_t(carried[0])];
    if (carried.size() > 1) {
      std::byte* end = scratch(carried.size() * part);
      packed = end;
      for (const int rank : carried) end = append(end, outputs[std::size_t(rank)], part);
    }
    std::byte* place = arrived[std::size_t(column_index)];
    for (int other = 0; other < hosts(); ++other) {
      if (other == own) continue;
      send(other, packed, carried.size() * part, 1);
      const std::size_t bytes = map.carried(other, column_index).size() * part;
      receive(other, place, bytes, 1);
      place += bytes;
    }
  }
  meet();
  SHOAL_KILL_POINT("hosts.spread");
  for (int index = 0; index < columns; ++index) {
    const std::byte* place = arrived[std::size_t(index)];
    const std::size_t bytes = carried_elsewhere(index) * part;
    if (local_ranks() > 1 && bytes != 0) host->broadcast({arrived[std::size_t(index)], bytes, nullptr}, index);
    for (int other = 0; other < hosts(); ++other) {
      if (other == own) continue;
      for (const int rank : map.carried(other, index)) {
        append(outputs[std::size_t(rank)], place, part);
        place += part;
      }
    }
  }
}

/// To the columns, to root's host, to root.
void TwoLevelGroup::gather(Region input, std::span<std::byte* const> outputs, int root, Type type) {
  State& s = *state_;
  s.check_root("gather", root);
  if (s.map.me == root && outputs.size() != std::size_t(s.map.world_size()))
    throw std::invalid_argument(
        fmt::format("gather: {} outputs in a group of {} ranks", outputs.size(), s.map.world_size()));
  s.call({Collective::gather, std::uint32_t(type), ~0u, root, input.bytes}, [&] {
    const auto [root_host, root_local] = s.map.places[std::size_t(root)];
    const int own = s.map.my_host();
    const std::size_t part = input.bytes, local_ranks = std::size_t(s.local_ranks());
    const std::byte* packed = input.data;
    if (own == root_host) {
      std::vector<std::byte*> here;
      for (int local = 0; local < s.local_ranks() && s.map.me == root; ++local)
        here.push_back(outputs[std::size_t(s.map.rank_at(own, local))]);
      if (local_ranks > 1)
        s.host->gather(input, here, root_local, type);
      else
        append(here[0], input.data, part);
    } else if (s.local_ranks() > s.columns) {
      std::vector<std::size_t> to(local_ranks), from(local_ranks);
      to[std::size_t(s.map.my_local() % s.columns)] = part;
      std::size_t bytes = 0;
      for (std::size_t local = 0; local < local_ranks && s.in_column(); ++local)
        if (int(local) % s.columns == s.column_index) bytes += from[local] = part;
      std::byte* collected = s.scratch(bytes);
      s.host->all_to_all({input.data, part, nullptr}, to, collected, from);
      packed = collected;
    }
    std::vector<std::size_t> sizes;  // that arrive at root's host, by column
    for (int column = 0; column < s.columns; ++column) {
      sizes.push_back(0);
      for (int other = 0; other < s.hosts(); ++other)
        if (other != root_host) sizes.back() += s.map.carried(other, column).size() * part;
    }
    std::byte* arrived = nullptr;
    if (s.in_column() && own != root_host)
      s.send(root_host, packed, s.map.carried(own, s.column_index).size() * part, 1);
    if (s.in_column() && own == root_host) {
      std::byte* place = arrived = s.scratch(sizes[std::size_t(s.column_index)]);
      for (int other = 0; other < s.hosts(); ++other) {
        if (other == own) continue;
        const std::size_t bytes = s.map.carried(other, s.column_index).size() * part;
        s.receive(other, place, bytes, 1);
        place += bytes;
      }
    }
    s.meet();
    if (own != root_host) return;
    const std::byte* all = arrived;
    if (local_ranks > 1) {
      std::byte* room = s.scratch(s.map.me == root ? std::accumulate(sizes.begin(), sizes.end(), std::size_t(0)) : 0);
      s.deliver_to(root_local, arrived, sizes, room);
      all = room;
    }
    if (s.map.me != root) return;
    for (int column = 0; column < s.columns; ++column)
      for (int other = 0; other < s.hosts(); ++other) {
        if (other == own) continue;
        for (const int rank : s.map.carried(other, column)) {
          append(outputs[std::size_t(rank)], all, part);
          all += part;
        }
      }
  });
}

/// Each host's sums of the parts that a column carries; each column's over the hosts; then to the ranks.
void TwoLevelGroup::reduce_scatter(Region input, std::byte* output, Type type, ReduceOp op) {
  State& s = *state_;
  const ReduceKernel checked(type, op), kernel(type, summing(op));
  const std::size_t world = std::size_t(s.map.world_size()), part = input.bytes / world;
  if (input.bytes % (kernel.element_size() * world) != 0)
    throw std::invalid_argument(fmt::format("reduce_scatter: {} bytes are not {} equal parts of whole {}", input.bytes,
                                            world, c10::toString(type)));
  s.call({Collective::reduce_scatter, std::uint32_t(type), std::uint32_t(op), -1, input.bytes}, [&] {
    const int own = s.map.my_host(), hosts = s.hosts();
    const std::byte* const parts = input.data;
    std::vector<const std::byte*> for_host(std::size_t(hosts),
                                           nullptr);  // this host's sums of what a host's column gets
    std::size_t bytes = 0;                            // that this rank's column gets
    if (s.map.is_equal()) {
      // Local rank l gets the parts of column l, one for each host.
      std::byte* const ordered = s.scratch(input.bytes);
      std::byte* end = ordered;
      for (int local = 0; local < s.local_ranks(); ++local)
        for (int host = 0; host < hosts; ++host)
          end = append(end, parts + std::size_t(s.map.rank_at(host, local)) * part, part);
      std::byte* sums = ordered;
      if (s.local_ranks() > 1) {
        sums = s.scratch(std::size_t(hosts) * part);
        s.host->reduce_scatter({ordered, input.bytes, nullptr}, sums, type, summing(op));
      }
      for (int host = 0; host < hosts; ++host) for_host[std::size_t(host)] = sums + std::size_t(host) * part;
      bytes = part;
    } else {
      std::byte* const sums = s.scratch(input.bytes);
      append(sums, parts, input.bytes);
      if (s.local_ranks() > 1) s.host->all_reduce({sums, input.bytes, nullptr}, type, summing(op));
      for (int host = 0; host < hosts && s.in_column(); ++host) {
        const std::vector<int> carried = s.map.carried(host, s.column_index);
        std::byte* end = s.scratch(carried.size() * part);
        for_host[std::size_t(host)] = end;
        for (const int rank : carried) end = append(end, sums + std::size_t(rank) * part, part);
        if (host == own) bytes = carried.size() * part;
      }
    }
    std::vector<const std::byte*> sources;
    for (int host = 0; host < hosts && s.in_column(); ++host) {
      if (host == own) {
        sources.push_back(for_host[std::size_t(own)]);
        continue;
      }
      std::byte* theirs = s.scratch(bytes);
      sources.push_back(theirs);
      s.send(host, for_host[std::size_t(host)], s.map.carried(host, s.column_index).size() * part, 1);
      s.receive(host, theirs, bytes, 1);
    }
    s.meet();
    std::byte* const result = s.scratch(bytes);
    if (s.in_column()) {
      s.reduce_hosts(kernel, sources, result, bytes);
      s.average(result, bytes, type, op);
    }
    s.deliver_parts(result, output, part);
  });
}

/// Root's parts to the columns of its host, these to the other hosts' columns, these to the ranks.
void TwoLevelGroup::scatter(Region input, std::byte* output, std::size_t part, int root, Type type) {
  State& s = *state_;
  s.check_root("scatter", root);
  const std::size_t world = std::size_t(s.map.world_size());
  if (s.map.me == root && input.bytes != part * world)
    throw std::invalid_argument(
        fmt::format("scatter: {} bytes are not {} parts of {} bytes", input.bytes, world, part));
  s.call({Collective::scatter, std::uint32_t(type), ~0u, root, part * world}, [&] {
    const auto [root_host, root_local] = s.map.places[std::size_t(root)];
    const int own = s.map.my_host();
    const std::size_t local_ranks = std::size_t(s.local_ranks());
    std::byte* have =
        nullptr;  // on root's host: this rank's part, and behind it those that its column carries elsewhere
    if (own == root_host) {
      auto bytes_for = [&](int local) { return part * (1 + (local < s.columns ? s.carried_elsewhere(local) : 0)); };
      std::vector<std::size_t> to(local_ranks), from(local_ranks);
      std::byte* packed = nullptr;
      if (s.map.me == root) {
        std::byte* end = packed = s.scratch(part * world);
        for (int local = 0; local < s.local_ranks(); ++local) {
          to[std::size_t(local)] = bytes_for(local);
          end = append(end, input.data + std::size_t(s.map.rank_at(own, local)) * part, part);
          for (int other = 0; other < s.hosts() && local < s.columns; ++other) {
            if (other == own) continue;
            for (const int rank : s.map.carried(other, local))
              end = append(end, input.data + std::size_t(rank) * part, part);
          }
        }
      }
      have = packed;
      if (local_ranks > 1) {
        from[std::size_t(root_local)] = bytes_for(s.map.my_local());
        have = s.scratch(bytes_for(s.map.my_local()));
        s.host->all_to_all({packed, s.map.me == root ? part * world : 0, nullptr}, to, have, from);
      }
      append(output, have, part);
    }
    std::byte* arrived = nullptr;
    if (s.in_column() && own == root_host) {
      const std::byte* place = have + part;
      for (int other = 0; other < s.hosts(); ++other) {
        if (other == own) continue;
        const std::size_t bytes = s.map.carried(other, s.column_index).size() * part;
        s.send(other, place, bytes, 1);
        place += bytes;
      }
    } else if (s.in_column()) {
      const std::size_t bytes = s.map.carried(own, s.column_index).size() * part;
      arrived = s.scratch(bytes);
      s.receive(root_host, arrived, bytes, 1);
    }
    s.meet();
    if (own != root_host) s.deliver_parts(arrived, output, part);
  });
}

/// Within the host each column's ranks get what it carries to other hosts; each column exchanges; then to the ranks.
void TwoLevelGroup::all_to_all(Region input, std::span<const std::size_t> input_bytes, std::byte* output,
                               std::span<const std::size_t> output_bytes, Type type) {
  State& s = *state_;
  const std::size_t world = std::size_t(s.map.world_size());
  if (input_bytes.size() != world || output_bytes.size() != world)
    throw std::invalid_argument(fmt::format("all_to_all: {} inputs and {} outputs in a group of {} ranks",
                                            input_bytes.size(), output_bytes.size(), world));
  s.call({Collective::all_to_all, std::uint32_t(type), ~0u, -1, 0}, [&] {
    const int own = s.map.my_host(), me = s.map.me, hosts = s.hosts(), locals = s.local_ranks();
    // All sizes to all ranks, so that all come to the same opinion, and know where in a message each part lies.
    std::vector<std::uint64_t> lists(2 * world * world), list(2 * world);
    std::ranges::copy(input_bytes, list.begin());
    std::ranges::copy(output_bytes, list.begin() + std::ptrdiff_t(world));
    std::vector<std::byte*> places;
    places.reserve(world);
    for (std::size_t rank = 0; rank < world; ++rank)
      places.push_back(reinterpret_cast<std::byte*>(lists.data() + rank * 2 * world));
    s.all_gather_now({reinterpret_cast<std::byte*>(list.data()), list.size() * sizeof list[0], nullptr}, places,
                     Type::Undefined);
    auto sends = [&](int from, int to) { return std::size_t(lists[std::size_t(from) * 2 * world + std::size_t(to)]); };
    for (int from = 0; from < int(world); ++from)
      for (int to = 0; to < int(world); ++to)
        if (const auto expected = lists[std::size_t(to) * 2 * world + world + std::size_t(from)];
            expected != sends(from, to))
          throw CollectiveMismatch(fmt::format("all_to_all: {} sends {} bytes to {}, which expects {}",
                                               s.map.describe(from), sends(from, to), s.map.describe(to), expected));

    // What local rank `to` gets from rank `from` of its host: its own part, and what its column carries elsewhere.
    auto for_each_part = [&](int to_local, auto each) {
      each(s.map.rank_at(own, to_local));
      for (int other = 0; other < hosts && to_local < s.columns; ++other) {
        if (other == own) continue;
        for (const int rank : s.map.carried(other, to_local)) each(rank);
      }
    };
    std::vector<std::size_t> begins(world), to(std::size_t(locals), 0), from(std::size_t(locals), 0);
    for (std::size_t rank = 1; rank < world; ++rank) begins[rank] = begins[rank - 1] + input_bytes[rank - 1];
    std::byte* const packed = s.scratch(input.bytes);
    std::byte* end = packed;
    for (int local = 0; local < locals; ++local)
      for_each_part(local, [&](int rank) {
        end = append(end, input.data + begins[std::size_t(rank)], sends(me, rank));
        to[std::size_t(local)] += sends(me, rank);
      });
    // Where the part for a rank, from a local rank, lies in what has come.
    std::vector<std::vector<std::size_t>> part_at{std::size_t(locals), std::vector<std::size_t>(world)};
    std::size_t total = 0;
    for (int local = 0; local < locals; ++local)
      for_each_part(s.map.my_local(), [&](int rank) {
        const std::size_t bytes = sends(s.map.rank_at(own, local), rank);
        part_at[std::size_t(local)][std::size_t(rank)] = total;
        total += bytes;
        from[std::size_t(local)] += bytes;
      });
    std::byte* have = packed;
    if (locals > 1) {
      have = s.scratch(total);
      s.host->all_to_all({packed, std::size_t(end - packed), nullptr}, to, have, from);
    }

    std::vector<std::byte*> arrived(std::size_t(hosts), nullptr);
    for (int other = 0; other < hosts && s.in_column(); ++other) {
      if (other == own) continue;
      std::size_t out = 0, in = 0;
      for (int local = 0; local < locals; ++local)
        for (const int rank : s.map.carried(other, s.column_index)) out += sends(s.map.rank_at(own, local), rank);
      for (int local = 0; local < s.map.ranks_on(other); ++local)
        for (const int rank : s.map.carried(own, s.column_index)) in += sends(s.map.rank_at(other, local), rank);
      std::byte* const message = s.scratch(out);
      std::byte* last = message;
      for (int local = 0; local < locals; ++local)
        for (const int rank : s.map.carried(other, s.column_index))
          last = append(last, have + part_at[std::size_t(local)][std::size_t(rank)],
                        sends(s.map.rank_at(own, local), rank));
      arrived[std::size_t(other)] = s.scratch(in);
      s.send(other, message, out, 2);
      s.receive(other, arrived[std::size_t(other)], in, 2);
    }
    s.finish();

    // To each rank of the host that this column carries: all that has come for it, by host and rank.
    std::vector<std::size_t> give(std::size_t(locals), 0), take(std::size_t(locals), 0);
    std::size_t whole = 0, incoming = 0;
    for (int other = 0; other < hosts; ++other)
      for (int local = 0; local < s.map.ranks_on(other); ++local) {
        if (other == own) continue;
        incoming += sends(s.map.rank_at(other, local), me);
        for (int here = s.column_index; s.in_column() && here < locals; here += s.columns)
          whole += sends(s.map.rank_at(other, local), s.map.rank_at(own, here));
      }
    take[std::size_t(s.map.my_local() % s.columns)] = incoming;
    std::byte* const sorted = s.scratch(whole);
    std::byte* next = sorted;
    for (int here = s.column_index; s.in_column() && here < locals; here += s.columns) {
      const std::byte* const begin = next;
      for (int other = 0; other < hosts; ++other) {
        if (other == own) continue;
        const std::byte* place = arrived[std::size_t(other)];
        for (int local = 0; local < s.map.ranks_on(other); ++local)
          for (const int rank : s.map.carried(own, s.column_index)) {
            const std::size_t bytes = sends(s.map.rank_at(other, local), rank);
            if (rank == s.map.rank_at(own, here)) next = append(next, place, bytes);
            place += bytes;
          }
      }
      give[std::size_t(here)] = std::size_t(next - begin);
    }
    const std::byte* last_leg = sorted;
    if (locals > s.columns) {
      std::byte* const room = s.scratch(incoming);
      s.host->all_to_all({sorted, whole, nullptr}, give, room, take);
      last_leg = room;
    }
    std::vector<std::size_t> results(world);
    for (std::size_t rank = 1; rank < world; ++rank) results[rank] = results[rank - 1] + output_bytes[rank - 1];
    for (int local = 0; local < locals; ++local)
      append(output + results[std::size_t(s.map.rank_at(own, local))],
             have + part_at[std::size_t(local)][std::size_t(me)], sends(s.map.rank_at(own, local), me));
    for (int other = 0; other < hosts; ++other)
      for (int local = 0; local < s.map.ranks_on(other); ++local) {
        if (other == own) continue;
        const int rank = s.map.rank_at(other, local);
        append(output + results[std::size_t(rank)], last_leg, sends(rank, me));
        last_leg += sends(rank, me);
      }
  });
}

/// Its note differs from that of a rank that does the collective, so all learn who refuses it.
void TwoLevelGroup::refuse(Collective what, const std::string& why) {
  State& s = *state_;
  try {
    s.call({Collective::refused, ~0u, std::uint32_t(what), -1, 0}, [&] { s.meet(); });
  } catch (const CollectiveMismatch&) {
    // The others' opinion of this call: this rank's own reason says more.
  }
  throw CollectiveMismatch(why);
}

std::uint64_t TwoLevelGroup::begun() const { return state_->number; }

std::shared_ptr<Mailbox> TwoLevelGroup::mailbox() const { return state_->mail; }

/// Each rank listens at a port of its own, which all others have to know.
void TwoLevelGroup::begin() {
  State& s = *state_;
  std::vector<int> local_of;
  local_of.reserve(std::size_t(s.map.world_size()));
  for (const HostMap::Place place : s.map.places) local_of.push_back(place.host == s.map.my_host() ? place.local : -1);
  std::shared_ptr<HostMail> remote;
  std::string why;
  try {
    remote = std::make_shared<HostMail>(*s.mail, s.map, schema_hash(s.place.group), s.link_timeout);
  } catch (const Error& error) {
    why = error.what();  // the others have to know
  }
  std::vector<std::int32_t> ports;
  s.call({Collective::all_gather, ~0u, ~0u, -1, sizeof ports[0]},
         [&] { ports = s.all_of(std::int32_t(remote ? remote->port() : -1)); });
  if (!why.empty()) throw Error(why);
  if (const auto none = std::ranges::find(ports, -1); none != ports.end())
    throw Error(
        fmt::format("{} could not listen for messages from other hosts", s.map.describe(int(none - ports.begin()))));
  s.remote = remote;
  s.mail->connect(remote, std::move(local_of), s.map.me);
  remote->start(ports);
  barrier();  // nobody connects before all know whom they get a connection from
}

/// When another host's note is there, all its ranks have called it.
void TwoLevelGroup::barrier() {
  State& s = *state_;
  s.call({Collective::barrier, ~0u, ~0u, -1, 0}, [&] { s.meet(); });
}

}  // namespace shoal
