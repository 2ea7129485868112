// What a process group needs of the ranks that it connects, wherever they are.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/train/communicator.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace shoal {

/// One rank of a group: the collectives with the rules of Communicator's, and what it has besides. CommunicatorRanks is one
/// on one host, TwoLevelGroup one on several. Collectives: one thread at a time; the mailbox and abort(): any.
class RankGroup {
 public:
  using Type = c10::ScalarType;

  virtual ~RankGroup() = default;

  virtual const char* backend_name() const = 0;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// Communicator::cpu_share().
  virtual double cpu_share() const = 0;
  virtual void set_timeout(std::chrono::nanoseconds timeout) = 0;
  /// Breaks the group for all ranks: what they are in, and what they call later, throws Error.
  virtual void abort() = 0;

  virtual void all_reduce(Region data, Type type, ReduceOp op) = 0;
  /// all_reduce() of a COO tensor.
  virtual void all_reduce_sparse(const at::Tensor& tensor, ReduceOp op) = 0;
  virtual void reduce(Region data, Type type, ReduceOp op, int root) = 0;
  virtual void broadcast(Region data, int root, Type type) = 0;
  virtual void all_gather(Region input, std::span<std::byte* const> outputs, Type type) = 0;
  virtual void gather(Region input, std::span<std::byte* const> outputs, int root, Type type) = 0;
  virtual void reduce_scatter(Region input, std::byte* output, Type type, ReduceOp op) = 0;
  virtual void scatter(Region input, std::byte* output, std::size_t part_bytes, int root, Type type) = 0;
  virtual void all_to_all(Region input, std::span<const std::size_t> input_bytes, std::byte* output,
                          std::span<const std::size_t> output_bytes, Type type) = 0;
  virtual void barrier() = 0;
  /// Communicator::refuse().
  [[noreturn]] virtual void refuse(Collective what, const std::string& why) = 0;
  /// Communicator::begun().
  virtual std::uint64_t begun() const = 0;

  /// This rank's part of a new group of these ranks, in their old order (split.h); null if it is no member.
  virtual std::unique_ptr<RankGroup> split(const std::vector<int>& members) = 0;
  /// Of all ranks that give this color, in the order of keys; null for kNoColor.
  virtual std::unique_ptr<RankGroup> split(int color, int key) = 0;
  /// This rank's messages to and from the others, by their ranks in this group.
  virtual std::shared_ptr<Mailbox> mailbox() const = 0;
};

}  // namespace shoal
