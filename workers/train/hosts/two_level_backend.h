// The c10d backend "shm+gloo": ranks on several hosts.
#pragma once

#include <shoal/internal/workers/train/hosts/two_level.h>

#include <chrono>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace shoal {

/// A TwoLevelGroup in libtorch's form, for CPU tensors. A call returns when it is done. Owned by its ProcessGroup. Threads:
/// any, one call at a time; abort(): any. Point-to-point, sparse tensors and PREMUL_SUM are refused by name.
class TwoLevelBackend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Work = c10::intrusive_ptr<c10d::Work>;

  explicit TwoLevelBackend(TwoLevelGroup::Parts parts);

  const std::string getBackendName() const override { return "shm+gloo"; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() override { group_.abort(); }
  const HostMap& map() const { return group_.map(); }

  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                     std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Work barrier(const c10d::BarrierOptions& options) override;
  Work send(Tensors& tensors, int to, int tag) override;
  Work recv(Tensors& tensors, int from, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;

 private:
  void all_reduce_one(const at::Tensor& tensor, const c10d::ReduceOp& op);
  void all_gather_one(const Tensors& outputs, const at::Tensor& input);
  void reduce_scatter_one(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op);
  Tensors parts_of(const at::Tensor& whole, const at::Tensor& part, const char* what) const;
  /// Begins a call. Its own timeout overrides the backend's.
  std::unique_lock<std::mutex> start(std::chrono::milliseconds timeout);

  std::mutex mutex_;
  TwoLevelGroup group_;
  std::chrono::milliseconds timeout_ = kBackendDefaultTimeout;
};

}  // namespace shoal
