// Four ranks write to one 4x4 tensor: it is the same memory in every process.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>

#include <vector>

double write_row(int rank, at::Tensor board) {
  board.select(0, rank).fill_(rank + 1);
  return board.select(0, rank).sum().item<double>();
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  at::Tensor board = at::zeros({4, 4});
  shoal::share_memory_(board);
  std::vector<double> sums = shoal::spawn({.nprocs = 4}, write_row, board);
  fmt::print("rank sums {} {} {} {}, board sum {}\n", sums[0], sums[1], sums[2], sums[3], board.sum().item<double>());
  return board.sum().item<double>() == 40 ? 0 : 1;
}
