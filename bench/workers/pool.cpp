// What does a task cost in a pool of two workers: one at a time, one after the other without waiting, and in a map?
// Beside multiprocessing.Pool, and torch.multiprocessing's for a shared tensor.
#include <shoal/workers/pool.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <shoal/runtime/init.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>

#include <numeric>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

constexpr int kRounds = 7;

int negate(int x) { return -x; }
at::Tensor same(at::Tensor tensor) { return tensor; }

/// Calls a second, of each round.
template <class Round>
std::vector<double> rates(int calls, Round&& round) {
  std::vector<double> result;
  for (int i = 0; i <= kRounds; ++i) {
    const double took = shoal::bench::seconds(round);
    if (i > 0) result.push_back(calls / took);  // the first one warms up
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  shoal::bench::Report report("pool");
  shoal::Pool pool({.processes = 2, .num_threads = 1});

  constexpr int kCalls = 20'000;
  report.add("shoal", "apply, empty", "1/s", rates(kCalls, [&] {
               for (int i = 0; i < kCalls; ++i) pool.apply(negate, i);
             }));
  at::Tensor shared = at::zeros({1 << 18});
  shoal::share_memory_(shared);
  report.add("shoal", "apply, shared tensor there and back", "1/s", rates(kCalls, [&] {
               for (int i = 0; i < kCalls; ++i) pool.apply(same, shared);
             }));
  constexpr int kTasks = 200'000;
  report.add("shoal", "apply_async, then get", "1/s", rates(kTasks, [&] {
               std::vector<shoal::AsyncResult<int>> results;
               results.reserve(kTasks);
               for (int i = 0; i < kTasks; ++i) results.push_back(pool.apply_async(negate, i));
               for (auto& result : results) result.get();
             }));
  std::vector<int> numbers(kTasks);
  std::iota(numbers.begin(), numbers.end(), 0);
  report.add("shoal", "map, chunks of 1", "1/s", rates(kTasks, [&] { pool.map({.chunksize = 1}, negate, numbers); }));
  report.add("shoal", "imap_unordered, chunks of 1", "1/s", rates(kTasks, [&] {
               for (int result : pool.imap_unordered(negate, numbers)) (void)result;
             }));
  std::vector<int> many(10'000'000);
  report.add("shoal", "map, default chunks", "1/s", rates(int(many.size()), [&] { pool.map(negate, many); }));

  report.run_peer("workers/pool");
  const std::string kPython = "multiprocessing.Pool", kTorch = "torch.multiprocessing.Pool";
  report.ask("apply, empty", "median", kPython, 20);
  report.ask("apply, shared tensor there and back", "median", kTorch, 100);
  report.ask("map, chunks of 1", "median", kPython, 10);
  report.ask("map, default chunks", "median", kPython, 1);
  report.ask_value("apply_async, then get", "median", 100'000);
}
