// A program whose preload computes with OpenMP, as libtorch does: the fork server can fork all the same, and what it
// forks can compute, too.
#include <shoal/runtime/hooks.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>

#include <cstdio>
#include <vector>

namespace {

int sum_in_parallel() {
  int sum = 0;
#pragma omp parallel num_threads(3) reduction(+ : sum)
  sum += 1;
  return sum;
}

int warmed = 0;
const bool registered = [] {
  shoal::register_preload([] { warmed = sum_in_parallel(); });
  return true;
}();

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const auto sums = shoal::spawn({.nprocs = 3, .start_method = shoal::StartMethod::forkserver},
                                 [](int) { return warmed * 10 + sum_in_parallel(); });
  for (const int sum : sums) std::printf("%d\n", sum);
  return sums == std::vector<int>{33, 33, 33} ? 0 : 1;
}
