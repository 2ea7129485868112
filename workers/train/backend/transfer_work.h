// The handle of a message that is on its way.
#pragma once

#include <shoal/workers/train/point_to_point.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace shoal {

/// What libtorch gets for a send or a receive. Any thread may use it.
class TransferWork final : public c10d::Work {
 public:
  /// `timeout`: for a wait() that gives none.
  TransferWork(c10d::OpType type, std::vector<at::Tensor> tensors, Transfer transfer, std::chrono::milliseconds timeout)
      : Work(-1, type), tensors_(std::move(tensors)), transfer_(std::move(transfer)), timeout_(timeout) {}

  bool isCompleted() override { return transfer_.is_done(); }
  bool isSuccess() const override { return transfer_.is_done() && !transfer_.failure(); }
  std::exception_ptr exception() const override { return transfer_.failure(); }
  int sourceRank() const override { return transfer_.peer(); }
  std::vector<at::Tensor> result() override { return tensors_; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds timeout) override;
  /// Waits: nobody moves a message while nobody waits for it.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<at::Tensor> tensors_;
  Transfer transfer_;
  std::chrono::milliseconds timeout_;
};

}  // namespace shoal
