// The ranks of one host as a process group's.
#pragma once

#include <shoal/internal/workers/train/backend/rank_group.h>

#include <utility>

namespace shoal {

/// A Communicator; says nothing of its own.
class CommunicatorRanks final : public RankGroup {
 public:
  explicit CommunicatorRanks(Communicator communicator) : ranks_(std::move(communicator)) {}

  const char* backend_name() const override { return "shm"; }
  int rank() const override { return ranks_.rank(); }
  int world_size() const override { return ranks_.world_size(); }
  double cpu_share() const override { return ranks_.cpu_share(); }
  void set_timeout(std::chrono::nanoseconds timeout) override { ranks_.set_timeout(timeout); }
  void abort() override { ranks_.abort(); }

  void all_reduce(Region data, Type type, ReduceOp op) override { ranks_.all_reduce(data, type, op); }
  void all_reduce_sparse(const at::Tensor& tensor, ReduceOp op) override;
  void reduce(Region data, Type type, ReduceOp op, int root) override { ranks_.reduce(data, type, op, root); }
  void broadcast(Region data, int root, Type type) override { ranks_.broadcast(data, root, type); }
  void all_gather(Region input, std::span<std::byte* const> outputs, Type type) override {
    ranks_.all_gather(input, outputs, type);
  }
  void gather(Region input, std::span<std::byte* const> outputs, int root, Type type) override {
    ranks_.gather(input, outputs, root, type);
  }
  void reduce_scatter(Region input, std::byte* output, Type type, ReduceOp op) override {
    ranks_.reduce_scatter(input, output, type, op);
  }
  void scatter(Region input, std::byte* output, std::size_t part_bytes, int root, Type type) override {
    ranks_.scatter(input, output, part_bytes, root, type);
  }
  void all_to_all(Region input, std::span<const std::size_t> input_bytes, std::byte* output,
                  std::span<const std::size_t> output_bytes, Type type) override {
    ranks_.all_to_all(input, input_bytes, output, output_bytes, type);
  }
  void barrier() override { ranks_.barrier(); }
  [[noreturn]] void refuse(Collective what, const std::string& why) override { ranks_.refuse(what, why); }
  std::uint64_t begun() const override { return ranks_.begun(); }

  std::unique_ptr<RankGroup> split(const std::vector<int>& members) override;
  std::unique_ptr<RankGroup> split(int color, int key) override;
  std::shared_ptr<Mailbox> mailbox() const override { return ranks_.share_mailbox(); }

 private:
  Communicator ranks_;
};

}  // namespace shoal
