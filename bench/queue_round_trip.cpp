// How long does a tensor take to another process and back? A child echoes what it gets; the peers are
// torch.multiprocessing with both of its strategies, a futex and a cache line.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/sync/futex.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "bench/report/report.h"

namespace {

using shoal::Queue;
using Clock = std::chrono::steady_clock;
using Micros = std::chrono::duration<double, std::micro>;

void echo(Queue<at::Tensor> there, Queue<at::Tensor> back) {
  while (true) {
    at::Tensor tensor = there.get();
    if (!tensor.defined()) return;
    back.put(tensor);
  }
}

/// Round trips of a shared tensor of this many bytes, with a pause of `idle` before each, in us.
std::vector<double> round_trips(Queue<at::Tensor>& there, Queue<at::Tensor>& back, std::int64_t bytes, int count,
                                std::chrono::microseconds idle) {
  at::Tensor tensor = shoal::empty_shared({bytes}, at::kByte);
  std::vector<double> samples;
  for (int i = -count / 10; i < count; ++i) {
    if (idle.count() > 0) ::usleep(useconds_t(idle.count()));  // both sides fall asleep
    auto start = Clock::now();
    there.put(tensor);
    at::Tensor result = back.get();
    double took = Micros(Clock::now() - start).count();
    if (i >= 0) samples.push_back(took);
  }
  return samples;
}

/// Two words in shared memory, on cache lines of their own: who waits for which is all there is.
struct Words {
  alignas(64) std::atomic<std::uint32_t> there{0};
  alignas(64) std::atomic<std::uint32_t> back{0};
};

/// The other side of the two floors. `block` is only a tensor so that it crosses.
void floor_echo(at::Tensor block, int count, bool spin) {
  auto& words = *static_cast<Words*>(block.data_ptr());
  for (int i = 1; i <= count; ++i) {
    while (words.there.load(std::memory_order_acquire) != std::uint32_t(i))  // pairs with the other side's store
      if (!spin) shoal::futex_wait(words.there, std::uint32_t(i - 1), std::chrono::seconds(1));
    words.back.store(std::uint32_t(i), std::memory_order_release);
    if (!spin) shoal::futex_wake(words.back, 1);
  }
}

std::vector<double> floor_round_trips(int count, bool spin, std::chrono::microseconds idle) {
  at::Tensor block = shoal::empty_shared({sizeof(Words)}, at::kByte);
  auto& words = *new (block.data_ptr()) Words;
  shoal::Process process({.name = "floor"}, floor_echo, block, count, spin);
  process.start();
  std::vector<double> samples;
  for (int i = 1; i <= count; ++i) {
    if (idle.count() > 0) ::usleep(useconds_t(idle.count()));
    auto start = Clock::now();
    words.there.store(std::uint32_t(i), std::memory_order_release);
    if (!spin) shoal::futex_wake(words.there, 1);
    while (words.back.load(std::memory_order_acquire) != std::uint32_t(i))
      if (!spin) shoal::futex_wait(words.back, std::uint32_t(i - 1), std::chrono::seconds(1));
    samples.push_back(Micros(Clock::now() - start).count());
  }
  process.join();
  return samples;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  at::set_num_threads(1);
  shoal::bench::Report report("queue_round_trip");
  const std::chrono::microseconds busy(0), asleep(2000);
  Queue<at::Tensor> there(64), back(64);
  shoal::Process process({.name = "echo"}, echo, there, back);
  process.start();
  report.add_quantile("cache line", "shared tensor, busy", "us", floor_round_trips(100'000, true, busy), 50);
  report.add_quantile("futex", "shared tensor 4 KiB, both asleep", "us", floor_round_trips(500, false, asleep), 50);
  for (auto [bytes, name] : {std::pair{64, "64 B"}, {4096, "4 KiB"}, {1 << 20, "1 MiB"}, {64 << 20, "64 MiB"}}) {
    auto samples = round_trips(there, back, bytes, 100'000, busy);
    for (int percent : {50, 99})
      report.add_quantile("shoal", std::string("shared tensor ") + name + ", busy", "us", samples, percent);
  }
  report.add_quantile("shoal", "shared tensor 4 KiB, both asleep", "us", round_trips(there, back, 4096, 500, asleep),
                      50);
  there.put(at::Tensor());
  process.join();
  report.run_peer("queue_round_trip");
}
