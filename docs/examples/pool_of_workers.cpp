// Three ways to give tasks to worker processes: one at a time, all at once, and while the results come. One of the
// tasks kills its worker, which costs that task only.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/pool.h>

#include <cstdlib>
#include <vector>

struct Report {
  int number;
  at::Tensor image;  // born in a worker, read here without a copy
};

double mean_of(at::Tensor image) { return image.mean().item<double>(); }

Report draw(int number) {
  if (number == 13) std::abort();
  return {number, at::full({64, 64}, double(number))};
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  shoal::Pool pool({.processes = 2});
  const double mean = pool.apply(mean_of, at::full({8, 8}, 3.0));

  std::vector<at::Tensor> images;
  for (int i = 0; i < 100; ++i) images.push_back(at::full({8, 8}, double(i)));
  double sum = 0;
  for (double one : pool.map(mean_of, images)) sum += one;

  int drawn = 0, lost = 0;
  std::vector<int> numbers;
  for (int i = 0; i < 20; ++i) numbers.push_back(i);
  auto reports = pool.imap(draw, numbers);
  for (int i = 0; i < 20; ++i) try {
      drawn += reports.next()->image.size(0) == 64;
    } catch (const shoal::WorkerDied& death) {
      fmt::print("{}\n", death.failure().what());
      ++lost;
    }
  fmt::print("mean {}, sum of means {}, {} images drawn, {} lost\n", mean, sum, drawn, lost);
  return mean == 3 && sum == 4950 && drawn == 19 && lost == 1 ? 0 : 1;
}
