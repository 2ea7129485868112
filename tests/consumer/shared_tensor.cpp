// Two processes write to a shared tensor and return a value. Without <shoal/shoal.h>, which takes 20 s to compile.
#include <ATen/ops/zeros.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>

#include <iostream>
#include <vector>

struct Report {
  int rank;
  double seen;
};

Report add(int rank, at::Tensor shared) {
  shared[rank].add_(rank + 1);
  return {rank, shared[rank].item<double>()};
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  at::Tensor shared = at::zeros({2});
  shoal::share_memory_(shared);
  const std::vector<Report> reports = shoal::spawn({.nprocs = 2}, add, shared);
  for (const auto& report : reports) std::cout << "rank " << report.rank << " saw " << report.seen << "\n";
  std::cout << "sum " << shared.sum().item<double>() << "\n";
  return reports.size() == 2 && shared.sum().item<double>() == 3 ? 0 : 1;
}
