// The parts of a communicator: what a collective is made of. For the sources of this folder, of collectives/ and of two_level/.
#pragma once

#include <shoal/internal/workers/train/group/flight_recorder.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/internal/workers/train/group/mailbox.h>
#include <shoal/internal/workers/train/group/mailboxes.h>
#include <shoal/internal/workers/train/group/peer_buffers.h>
#include <shoal/internal/workers/train/group/rank_cpus.h>
#include <shoal/internal/workers/train/group/rounds.h>
#include <shoal/workers/train/communicator.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace shoal {
/// "all_reduce" and so on: what errors and traces call a collective.
const char* name_of(Collective what);
/// Of any number; "?" for one that is none.
const char* name_of_any(std::uint32_t what);

struct Communicator::State {
  State(std::shared_ptr<ShmGroup::Parts> group, GroupLayout& shared, int rank)
      : parts(std::move(group)),
        layout(shared),
        rounds(shared, rank),
        recorder(shared, rank),
        buffers(rounds, parts->inboxes),
        mailbox(std::make_shared<Mailbox>(parts, shared, rank)),
        me(rank),
        world(rounds.world_size()),
        sources(std::size_t(world)),
        destinations(std::size_t(world)) {
    say_cpus(shared.rank(rank));
    list_mailbox(mailbox);
  }
  ~State() { mailbox->leave(); }

  /// In an Announcement: no type, no operation.
  static constexpr std::uint32_t kNone = ~0u;
  static constexpr std::size_t kLine = 64;
  /// Up to here private data goes along with its announcement: one round, and two copies that stay in the caches.
  static constexpr std::size_t kSmallBytes = 4 << 10;

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

  static void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
  }

  /// How the data of a collective gets from rank to rank.
  enum class Transfer {
    announced,  // it lies in the stages of the round that announced it
    in_place,   // everybody's lies in the heap: to be read, and perhaps written, where it is
    staged,     // chunk by chunk through the stages
    apart,  // staged, from copies: what ranks are to change overlaps, and none may change it before all have read it
  };

  Transfer begin(const Announcement& announcement, const Region& shown) {
    return begin(announcement, shown, announcement.bytes);
  }
  /// `most_bytes`: of any rank's data, if ranks give unequal amounts. All have to come to the same one.
  Transfer begin(Announcement announcement, const Region& shown, std::uint64_t most_bytes);
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
  /// Where rank's shown data starts, for Transfer::announced and Transfer::in_place. Null if it shows none.
  std::byte* shown_by(int rank, Transfer transfer, const Region& own);
  void find_sources(Transfer transfer, const Region& own);

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
  FlightRecorder recorder;
  PeerBuffers buffers;
  std::shared_ptr<Mailbox> mailbox;
  int me;
  int world;
  std::vector<const std::byte*> sources;  // one a rank; kept, so that a collective allocates nothing
  std::vector<std::byte*> destinations;
  std::vector<std::pair<int, std::uint32_t>> shown_once;  // rank and slot, of the collective that is going on
};

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

}  // namespace shoal
