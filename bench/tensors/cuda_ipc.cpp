// What does it take to hand a tensor on a GPU to another process: one in an allocation that is not open there yet, with
// its first use, and in the steady state? The peer is torch.multiprocessing. Prints "no GPU" where there is none; with
// --host-double the cases run on the host double of the tests: that says that they run, and nothing about a GPU.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "bench/report/report.h"

#ifdef SHOAL_BENCH_HOST_DOUBLE
#include "tests/support/host_double/host_double.h"
#endif

namespace {

using shoal::Queue;

enum class Then : int { kKeep, kUse, kForget, kEnd };

struct Request {
  at::Tensor tensor;
  Then then;
};

/// Answers each tensor when it has it, or when it has used it.
void answer(Queue<Request> in, Queue<int> out) {
  at::Tensor kept;
  for (;;) {
    Request request = in.get();
    if (request.then == Then::kEnd) return;
    if (request.then == Then::kKeep) kept = request.tensor;
    if (request.then == Then::kUse) (void)request.tensor.view({-1}).slice(0, 0, 1).cpu();
    const bool forget = request.then != Then::kKeep;
    request = Request{};
    out.put(0);
    // Not timed: the next one has to be opened anew.
    if (forget) shoal::ipc_collect();
  }
}

class Bench {
 public:
  Bench(c10::Device device, int round_trips)
      : device_(device),
        round_trips_(round_trips),
        process_({.name = "receiver", .num_threads = 1}, answer, requests_, answers_) {
    process_.start();
  }
  ~Bench() {
    requests_.put(Request{at::Tensor(), Then::kEnd});
    process_.join();
  }

  /// A tensor of 64 MiB is an allocation of its own.
  std::vector<double> fresh(Then then) {
    std::vector<double> samples;
    for (int i = 0; i < std::max(5, round_trips_ / 50); ++i) {
      at::Tensor tensor = at::empty({64 << 20}, at::TensorOptions(at::kByte).device(device_));
      tensor.fill_(1);
      c10::impl::VirtualGuardImpl guard(device_.type());
      guard.synchronizeStream(guard.getStream(device_));  // only the way is timed
      samples.push_back(round_trip({tensor, then}));
      tensor = at::Tensor();
      shoal::wait_until_released(std::chrono::seconds(10));
      if (device_.is_cuda()) c10::getDeviceAllocator(device_.type())->emptyCache();
    }
    return samples;
  }

  std::vector<double> steady() {
    const at::Tensor tensor = at::zeros({1 << 20}, at::TensorOptions(at::kFloat).device(device_));
    round_trip({tensor, Then::kKeep});
    std::vector<double> samples;
    for (int i = 0; i < round_trips_; ++i) {
      const std::int64_t start = i % 1000 * 1024;
      samples.push_back(round_trip({tensor.slice(0, start, start + 1024), Then::kKeep}));
    }
    return samples;
  }

 private:
  double round_trip(const Request& request) {
    return 1e6 * shoal::bench::seconds([&] {
             requests_.put(request);
             answers_.get();
           });
  }

  c10::Device device_;
  int round_trips_;
  Queue<Request> requests_{16};
  Queue<int> answers_{16};
  shoal::Process<void> process_;
};

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  CLI::App app("tensors on a GPU between two processes, beside torch.multiprocessing");
  bool peers = true, host_double = false;
  int round_trips = 2'000;
  app.add_flag("--peers,!--no-peers", peers, "run the peer too");
  app.add_flag("--host-double", host_double, "run on host memory: to see that it runs");
  app.add_option("--round-trips", round_trips, "in the steady state");
  CLI11_PARSE(app, argc, argv);
  c10::DeviceType type = c10::kCUDA;
#ifdef SHOAL_BENCH_HOST_DOUBLE
  if (host_double) type = shoal::host_double::kType;
#else
  if (host_double) return std::fputs("built without the host double (SHOAL_TESTS)\n", stderr), 1;
#endif
  if (!shoal::find_device_memory(type)) {
    std::puts("no GPU");
    return 0;
  }
  shoal::bench::Report report("cuda_ipc");
  const std::string impl = host_double ? "shoal on the host double" : "shoal";
  {
    Bench bench(c10::Device(type, 0), round_trips);
    report.add(impl, "round trip, allocation not open yet", "us", bench.fresh(Then::kForget));
    report.add(impl, "round trip, allocation not open yet, and its first use", "us", bench.fresh(Then::kUse));
    report.add(impl, "round trip, a slice of an open allocation", "us", bench.steady());
  }
  if (peers && !host_double) report.run_peer("tensors/cuda_ipc");
  return 0;
}
