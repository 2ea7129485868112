// The c10d backends "shm" and "shm+gloo".
#pragma once

#include <shoal/internal/workers/train/backend/collective_work.h>
#include <shoal/internal/workers/train/backend/progress_thread.h>
#include <shoal/internal/workers/train/backend/rank_group.h>
#include <shoal/internal/workers/train/backend/reduction.h>
#include <shoal/workers/train/process_group.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace shoal {

/// A RankGroup in libtorch's form; init_process_group makes it and says what it does. Owned by its ProcessGroup.
/// Threads: any; collectives take turns, and are begun in the order in which they got theirs.
class CollectiveBackend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Work = c10::intrusive_ptr<c10d::Work>;

  explicit CollectiveBackend(std::unique_ptr<RankGroup> ranks, Progress progress = Progress::automatic);

  const std::string getBackendName() const override { return ranks_->backend_name(); }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  /// This rank's part of a new group of these ranks (split.h), null if it is no member. Its timeout is this one's
  /// unless another is given.
  c10::intrusive_ptr<CollectiveBackend> split_off(const std::vector<int>& ranks,
                                                  std::optional<std::chrono::milliseconds> timeout);
  /// The same for the ranks that give this color, in the order of keys; null for kNoColor.
  c10::intrusive_ptr<CollectiveBackend> split_off(int color, int key);
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;

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
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // Of all of these: what a rank alone gives wrong is told to the others, which get CollectiveMismatch in their call.

  // They take no turns: a rank may send in one thread while another one is in a collective.
  Work send(Tensors& tensors, int to, int tag) override;
  Work recv(Tensors& tensors, int from, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;

  /// What is begun between the two is over when the second one's Work is. One thread calls both, and what lies between.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  Work endCoalescing() override;

  /// Ranks begin to count together: there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override {}  // it costs next to nothing, and is always on
  /// What the last collective that went wrong did so by; SUCCESS where only arguments did not fit.
  c10d::ErrorType getError() override;
  void abort() override { ranks_->abort(); }
  /// The number of another model whose passes (ForwardPass) are compared in this group's collectives: from 1, the same on all
  /// ranks if these ask in the same order.
  std::uint32_t number_model() { return ++models_; }
  /// How many collectives came to nothing, since ranks called different ones or one could not take part: the same on all
  /// ranks, as soon as each has done them.
  std::uint64_t mismatches() const { return mismatches_.load(std::memory_order_relaxed); }  // relaxed: a number
  std::shared_ptr<Mailbox> mailbox() const { return ranks_->mailbox(); }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  /// In the heap, where collectives find it in place.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

 private:
  struct Kind;
  template <class Body>
  Work submit(Kind kind, std::chrono::milliseconds timeout, Tensors outputs, Body body);
  template <class Body>
  void perform(CollectiveWork& work, Collective what, std::chrono::milliseconds timeout, const Body& body);
  void refuse(Collective what, const std::exception_ptr& failure) noexcept;
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;
  static void report(const Hook& hook, const CollectiveWork& work, std::chrono::steady_clock::time_point since);
  Work begun(Work work);
  template <class Split>
  c10::intrusive_ptr<CollectiveBackend> part_by(Split split, std::chrono::milliseconds timeout);
  void choose_progress();

  void all_reduce_one(const at::Tensor& tensor, const Reduction& reduction);
  void all_gather_one(const Tensors& outputs, const at::Tensor& input);
  void reduce_scatter_one(const at::Tensor& output, const at::Tensor& input, const Reduction& reduction);
  Tensors parts_of(const at::Tensor& whole, const at::Tensor& part, const char* what) const;
  std::chrono::milliseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }  // relaxed: a number

  std::mutex mutex_;  // the turns: of collectives that are done in the call, or of those that are given to the thread
  std::unique_ptr<RankGroup> ranks_;
  std::atomic<std::chrono::milliseconds> timeout_ = kBackendDefaultTimeout;
  std::atomic<c10d::ErrorType> error_ = c10d::ErrorType::SUCCESS;
  std::uint64_t sequence_ = 0;
  std::atomic<std::uint32_t> models_ = 0;
  std::atomic<std::uint64_t> mismatches_ = 0;
  std::uint64_t begun_before_ = 0;  // the ranks' collectives, before the one that is begun next; of who does them
  std::optional<std::vector<Work>> coalesced_;
  Progress progress_;
  std::optional<ProgressThread> thread_;  // last, so that it ends first
};

}  // namespace shoal
