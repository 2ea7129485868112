// The handle of a collective that is done.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace shoal {

/// What libtorch gets for a collective that was complete, and had succeeded, when its call returned. Any
/// thread may use it.
class FinishedWork final : public c10d::Work {
 public:
  FinishedWork(c10d::OpType type, std::vector<at::Tensor> outputs);

  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  std::exception_ptr exception() const override { return nullptr; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<at::Tensor> outputs_;
};

}  // namespace shoal
