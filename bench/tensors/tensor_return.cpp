// How long until what a rank returns is the parent's? From the rank's return statement (or put) until the parent has
// the nested result of tensors: what the function returns, with the rank's end, and through a queue, without. Beside
// torch.multiprocessing, where results go through a SimpleQueue, as PyTorch Lightning returns them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

using namespace shoal::bench;

struct Result {
  std::map<std::string, std::vector<at::Tensor>> tensors;
  double loss;
  std::int64_t returned_at;  // steady clock, the same in all processes
};

struct Case {
  const char* name;
  int lists, tensors, floats;
  int count;
};

constexpr Case kCases[] = {{"100 tensors of 4 KiB", 10, 10, 1024, 200}, {"4 tensors of 16 MiB", 2, 2, 4 << 20, 10}};

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

Result make(int which) {
  const Case& asked = kCases[which];
  Result result;
  for (int list = 0; list < asked.lists; ++list)
    for (int i = 0; i < asked.tensors; ++i)
      result.tensors["layer" + std::to_string(list)].push_back(at::ones({asked.floats}));
  result.loss = 0.5;
  result.returned_at = now();
  return result;
}

/// One at a time: the parent asks for the next when it has one.
void put_results(int which, shoal::Queue<bool> asks, shoal::Queue<Result> results) {
  while (asks.get()) results.put(make(which));
}

double micros_since(std::int64_t then) { return double(now() - then) * 1e-3; }

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  CLI::App app("nested results of a rank, to the parent, beside torch");
  bool peers = true;
  app.add_flag("--peers,!--no-peers", peers, "run the peers too");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  Report report("tensor_return");
  for (int which = 0; which < int(std::size(kCases)); ++which) {
    const Case& asked = kCases[which];
    const std::string queued = std::string("through a queue, ") + asked.name;
    const std::string joined = std::string("returned and joined, ") + asked.name;
    std::vector<double> samples;
    shoal::Queue<bool> asks(1);
    shoal::Queue<Result> results(1);
    shoal::Process process({.name = "rank", .num_threads = 1}, put_results, which, asks, results);
    process.start();
    for (int i = -1; i < asked.count; ++i) {
      asks.put(true);
      Result result = results.get();
      if (i >= 0) samples.push_back(micros_since(result.returned_at));
    }
    asks.put(false);
    process.join();
    report.add("shoal", queued, "us", samples);
    samples.clear();
    for (int i = -1; i < std::min(asked.count, 30); ++i) {
      shoal::Process once({.name = "rank", .num_threads = 1}, make, which);
      once.start();
      Result result = once.result();
      if (i >= 0) samples.push_back(micros_since(result.returned_at));
    }
    report.add("shoal", joined, "us", samples);
    for (const std::string& name : {queued, joined}) report.ask(name, "median", "torch", 1);
  }
  if (peers) report.run_peer("tensors/tensor_return");
}
