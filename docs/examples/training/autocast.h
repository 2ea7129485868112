// Mixed precision of one forward pass.
#pragma once

#include <cstdint>

/// What the layers that gain by it compute in: convolutions, products of matrices, attention.
enum class Amp : std::uint8_t { none, bf16 };

/// While such an object lives, libtorch computes this thread's operations on the CPU as torch.autocast does: parameters stay
/// float, and so do losses and gradients. As in torch it is for the forward pass alone: the backward pass follows the types
/// that the forward pass had. One thread; with Amp::none it does nothing.
class Autocast {
 public:
  explicit Autocast(Amp amp);
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast();

 private:
  bool changed_;
};
