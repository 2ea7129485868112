// Collectives of ranks on several hosts: in shared memory within a host, by columns between hosts.
#pragma once

#include <c10/core/ScalarType.h>
#include <shoal/internal/workers/train/backend/rank_group.h>
#include <shoal/internal/workers/train/failures/failure_board.h>
#include <shoal/internal/workers/train/hosts/column.h>
#include <shoal/internal/workers/train/hosts/host_map.h>
#include <shoal/internal/workers/train/hosts/meeting.h>
#include <shoal/workers/train/communicator.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace shoal {

/// One rank of a group that is on several hosts. The calls are Communicator's, with the same rules; docs/hosts.md says how
/// they go. One thread at a time uses it; abort() may be called by any.
///
/// - A reduction is each host's, in the order of local ranks, and then over these in the order of hosts: the same bits on
///   all ranks and in every run with the same ranks on each host. An average is the sum, divided once.
/// - If the calls differ, on one host or between hosts, every rank gets CollectiveMismatch, which says who called what.
///   Outputs may have any content. The group can be used on.
/// - If a rank dies, leaves, cannot be reached for the link time-out, or does not come in time, all get PeerDied or
///   TimeoutError with the same text, which names the rank, its host and this collective; from every later call, too.
class TwoLevelGroup final : public RankGroup {
 public:
  /// What the rank has come together with: see meet_hosts.h.
  struct Parts {
    HostMap map;
    std::unique_ptr<Communicator> host;      ///< the ranks of this host
    std::unique_ptr<StoreConnection> store;  ///< rank 0's
    std::unique_ptr<Column> column;          ///< null if this rank is in none
    std::unique_ptr<FailureBoard> board;     ///< this host's
    MeetingPlace place;                      ///< where the store is, and this group's keys in it
    std::chrono::milliseconds link_timeout;
  };

  explicit TwoLevelGroup(Parts parts);
  ~TwoLevelGroup() override;

  const HostMap& map() const;
  const char* backend_name() const override { return "shm+gloo"; }
  int rank() const override { return map().me; }
  int world_size() const override { return map().world_size(); }
  double cpu_share() const override;
  void set_timeout(std::chrono::nanoseconds timeout) override;
  /// Breaks the group for all ranks: calls under way and later ones throw Error.
  void abort() override;

  void all_reduce(Region data, Type type, ReduceOp op) override;
  /// All elements go to all ranks, which add them in the order of ranks.
  void all_reduce_sparse(const at::Tensor& tensor, ReduceOp op) override;
  void reduce(Region data, Type type, ReduceOp op, int root) override;
  void broadcast(Region data, int root, Type type) override;
  void all_gather(Region input, std::span<std::byte* const> outputs, Type type) override;
  void gather(Region input, std::span<std::byte* const> outputs, int root, Type type) override;
  void reduce_scatter(Region input, std::byte* output, Type type, ReduceOp op) override;
  void scatter(Region input, std::byte* output, std::size_t part_bytes, int root, Type type) override;
  /// Also exchanges the sizes, world_size times world_size numbers, before.
  void all_to_all(Region input, std::span<const std::size_t> input_bytes, std::byte* output,
                  std::span<const std::size_t> output_bytes, Type type) override;
  void barrier() override;
  [[noreturn]] void refuse(Collective what, const std::string& why) override;
  std::uint64_t begun() const override;

  std::unique_ptr<RankGroup> split(const std::vector<int>& members) override;
  std::unique_ptr<RankGroup> split(int color, int key) override;
  std::shared_ptr<Mailbox> mailbox() const override;

  /// Connects what sends from rank to rank, on all ranks: the first call of every group.
  void begin();

 private:
  std::unique_ptr<RankGroup> form(const std::vector<int>& members);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
