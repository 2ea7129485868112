// Collectives of ranks on several hosts: in shared memory within a host, by columns between hosts.
#pragma once

#include <c10/core/ScalarType.h>
#include <shoal/internal/workers/train/gloo/gloo_group.h>
#include <shoal/internal/workers/train/hosts/failure_board.h>
#include <shoal/internal/workers/train/hosts/host_map.h>
#include <shoal/internal/workers/train/hosts/meeting.h>
#include <shoal/workers/train/communicator.h>

#include <chrono>
#include <memory>
#include <span>

namespace shoal {

/// One rank of a group that is on several hosts. The calls are Communicator's, with the same rules; docs/hosts.md says how
/// they go. Owned by one thread, which uses it; abort() may be called by any.
///
/// - A reduction is each host's, in the order of local ranks, and then over these in the order of hosts: the same bits on
///   all ranks and in every run with the same ranks on each host. An average is the sum, divided once.
/// - If the calls differ, on one host or between hosts, every rank gets std::invalid_argument, which says who called what.
///   Outputs may have any content. The group can be used on.
/// - If a rank dies, leaves, cannot be reached for the link time-out, or does not come in time, all get PeerDied or
///   TimeoutError with the same text, which names the rank, its host and this collective; from every later call, too.
class TwoLevelGroup {
 public:
  using Type = c10::ScalarType;

  /// What the rank has come together with: see meet_hosts.h.
  struct Parts {
    HostMap map;
    std::unique_ptr<Communicator> host;      ///< the ranks of this host
    std::unique_ptr<StoreConnection> store;  ///< rank 0's
    std::unique_ptr<GlooGroup> column;       ///< null if this rank is in none
    std::unique_ptr<FailureBoard> board;     ///< this host's
    std::chrono::milliseconds link_timeout;
  };

  explicit TwoLevelGroup(Parts parts);
  ~TwoLevelGroup();

  const HostMap& map() const;
  void set_timeout(std::chrono::nanoseconds timeout);
  /// Breaks the group for all ranks: calls under way and later ones throw Error.
  void abort();

  void all_reduce(Region data, Type type, ReduceOp op);
  void reduce(Region data, Type type, ReduceOp op, int root);
  void broadcast(Region data, int root, Type type = Type::Undefined);
  void all_gather(Region input, std::span<std::byte* const> outputs, Type type = Type::Undefined);
  void gather(Region input, std::span<std::byte* const> outputs, int root, Type type = Type::Undefined);
  void reduce_scatter(Region input, std::byte* output, Type type, ReduceOp op);
  void scatter(Region input, std::byte* output, std::size_t part_bytes, int root, Type type = Type::Undefined);
  /// Also exchanges the sizes, world_size times world_size numbers, before.
  void all_to_all(Region input, std::span<const std::size_t> input_bytes, std::byte* output,
                  std::span<const std::size_t> output_bytes, Type type = Type::Undefined);
  void barrier();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
