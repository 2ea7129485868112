// The handle of a collective.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace shoal {

/// What libtorch gets for a collective; end() says that it is over. Any thread may use it.
class CollectiveWork final : public c10d::Work {
 public:
  /// `sequence`: which of its rank's collectives it is.
  CollectiveWork(c10d::OpType type, std::vector<at::Tensor> outputs, std::uint64_t sequence);

  /// Called once, by whoever does the collective. Whoever waits goes on, with this exception if there is one; then what
  /// is chained to the future is called, in this thread.
  void end(std::exception_ptr failure, std::chrono::steady_clock::duration took);

  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override {}  // the outputs are on the CPU, and complete
  /// Throws what went wrong; TimeoutError if it is not over within `timeout`, after which it goes on.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  /// In milliseconds.
  float getDuration() const override;

 private:
  void settle(std::unique_lock<std::mutex>& lock);

  std::vector<at::Tensor> outputs_;
  std::uint64_t sequence_;
  std::chrono::steady_clock::duration took_{};
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // once it was asked for
  bool settled_ = false;
};

}  // namespace shoal
