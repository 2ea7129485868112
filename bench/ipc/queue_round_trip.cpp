// How long does a message take to another process and back? A child echoes what it gets: tensors that are shared
// already, private ones (copied once), lent ones, and bytes (copied in and out); hot, with both sides asleep between
// messages, and beside other busy processes. The peers are torch.multiprocessing with both of its strategies and other
// systems' queues; the floors a futex, a cache line and memcpy.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <sched.h>
#include <shoal/internal/ipc/base/futex.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "bench/busy/busy_processes.h"
#include "bench/report/message_cases.h"
#include "bench/report/report.h"

namespace {

using namespace shoal::bench;
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

void echo_bytes(Queue<std::vector<std::uint8_t>> there, Queue<std::vector<std::uint8_t>> back, int count) {
  for (int i = 0; i < count; ++i) back.put(there.get());
}

/// Times of `count` calls in us, after a few that do not count; with a pause before each.
template <class Call>
std::vector<double> times(int count, std::chrono::microseconds idle, Call&& call) {
  std::vector<double> samples;
  for (int i = -count / 10 - 1; i < count; ++i) {
    if (idle.count() > 0) ::usleep(useconds_t(idle.count()));  // both sides fall asleep
    auto start = Clock::now();
    call();
    double took = Micros(Clock::now() - start).count();
    if (i >= 0) samples.push_back(took);
  }
  return samples;
}

std::vector<double> bytes_round_trips(std::size_t bytes, int count, std::chrono::microseconds idle) {
  Queue<std::vector<std::uint8_t>> there(8), back(8);
  shoal::Process process({.name = "echo", .num_threads = 1}, echo_bytes, there, back, count + count / 10 + 1);
  process.start();
  std::vector<std::uint8_t> message(bytes);
  auto samples = times(count, idle, [&] {
    there.put(message);
    message = back.get();
  });
  process.join();
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

/// Which CPUs two processes that talk to each other have: by the kernel's choice, one together, or one each. A wake-up
/// on the CPU of the one who wakes is one switch; on another CPU it is an interrupt, and longer where that CPU has
/// halted.
enum class Placement { kFree, kOneCpu, kTwoCpus };
constexpr std::pair<Placement, const char*> kPlacements[]{
    {Placement::kFree, ""}, {Placement::kOneCpu, ", on one CPU"}, {Placement::kTwoCpus, ", on two CPUs"}};

/// Places this process and the other one for its lifetime.
class Placed {
 public:
  Placed(pid_t other, Placement placement) : other_(other) {
    ::sched_getaffinity(0, sizeof before_, &before_);
    if (placement == Placement::kFree) return;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &before_)) cpus.push_back(cpu);
    bind(0, cpus.front());
    bind(other_, placement == Placement::kOneCpu ? cpus.front() : cpus.back());
  }
  ~Placed() {
    for (pid_t pid : {0, other_}) ::sched_setaffinity(pid, sizeof before_, &before_);
  }
  Placed(const Placed&) = delete;

 private:
  static void bind(pid_t pid, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    ::sched_setaffinity(pid, sizeof set, &set);
  }
  pid_t other_;
  cpu_set_t before_{};
};

std::vector<double> floor_round_trips(int count, bool spin, std::chrono::microseconds idle,
                                      Placement placement = Placement::kFree) {
  at::Tensor block = shoal::empty_shared({sizeof(Words)}, at::kByte);
  auto& words = *new (block.data_ptr()) Words;
  shoal::Process process({.name = "floor"}, floor_echo, block, count, spin);
  process.start();
  const Placed placed(process.pid(), placement);
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
  CLI::App app("round trips through two queues, beside the peers");
  bool peers = true;
  app.add_flag("--peers,!--no-peers", peers, "run the peers too");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  Report report("queue_round_trip");
  const std::chrono::microseconds busy(0), asleep(kAsleepMicros);
  Queue<at::Tensor> there(64), back(64);
  shoal::Process process({.name = "echo", .num_threads = 1}, echo, there, back);
  process.start();
  auto floor_case = [&](const std::string& case_name, int count, bool spin) {
    report.add_quantile(spin ? "cache line" : "futex", case_name, "us",
                        floor_round_trips(count, spin, spin ? busy : asleep), 50);
  };
  auto shoal_case = [&](const std::string& case_name, const std::vector<double>& samples) {
    for (int percent : {50, 99}) report.add_quantile("shoal", case_name, "us", samples, percent);
  };
  floor_case("shared tensor 64 B, busy", 100'000, true);
  floor_case(kBytesAsleep, kAsleepRoundTrips, false);
  for (const MessageSize& size : kRoundTripSizes) {
    if (size.bytes == 0) continue;
    const std::string case_name = std::string("shared tensor ") + size.name + ", busy";
    at::Tensor tensor = shoal::empty_shared({std::int64_t(size.bytes)}, at::kByte);
    shoal_case(case_name, times(100'000, busy, [&] {
                 there.put(tensor);
                 back.get();
               }));
    report.ask_value(case_name, "p50", 0.8);
    report.ask(case_name, "p50", "torch", 200);
  }
  at::Tensor tensor = shoal::empty_shared({4096}, at::kByte);
  auto round_trip = [&] {
    there.put(tensor);
    back.get();
  };
  auto asleep_case = [&](const std::string& case_name, std::chrono::microseconds idle, Placement placement) {
    auto floor = [&] {
      report.add_quantile("futex", case_name, "us", floor_round_trips(kAsleepRoundTrips, false, idle, placement), 50);
    };
    floor();  // before and after: the machine may be another one by then
    {
      const Placed placed(process.pid(), placement);
      shoal_case(case_name, times(kAsleepRoundTrips, idle, round_trip));
    }
    floor();
    report.ask(case_name, "p50", "futex", 1 / 1.3);
  };
  for (const auto& [placement, words] : kPlacements)
    asleep_case(std::string("shared tensor 4 KiB, both asleep") + words, asleep, placement);
  // So short a time ago that the caches still have what a message needs: the difference is what fetching it costs.
  asleep_case("shared tensor 4 KiB, both asleep for 60 us, on one CPU", std::chrono::microseconds(60),
              Placement::kOneCpu);
  for (int others : {1, 2}) {
    const std::string case_name = fmt::format("shared tensor 4 KiB, beside {} busy", others);
    const BusyProcesses busy_processes(others);
    // Several times: where the kernel puts the two sides decides, and it does so for long.
    std::vector<double> samples;
    for (int round = 0; round < 5; ++round) {
      std::vector<double> more = times(40'000, busy, round_trip);
      samples.insert(samples.end(), more.begin(), more.end());
    }
    shoal_case(case_name, samples);
    report.add_mean("shoal", case_name, "us", samples);
    report.add_mean("futex", case_name, "us", floor_round_trips(20'000, false, busy));
    for (const char* metric : {"p50", "mean"}) report.ask_value(case_name, metric, 3);
  }
  for (const MessageSize& size : kRoundTripSizes) {
    if (size.bytes == 0) continue;
    const int count = size.round_trips;
    const std::string copied = std::string("private tensor ") + size.name + ", one copy, busy";
    at::Tensor source = at::ones({std::int64_t(size.bytes)}, at::kByte);
    at::Tensor target = shoal::empty_shared({std::int64_t(size.bytes)}, at::kByte);
    report.add_quantile(
        "memcpy", copied, "us",
        times(count, busy, [&] { std::memcpy(target.data_ptr(), source.const_data_ptr(), size.bytes); }), 50);
    shoal_case(copied, times(count, busy, [&] {
                 there.put(source);
                 back.get();
               }));
    shoal_case(std::string("lent tensor ") + size.name + ", busy", times(20'000, busy, [&] {
                 at::Tensor lent = shoal::empty_shared({std::int64_t(size.bytes)}, at::kByte);
                 there.put(lent);
                 back.get();
               }));
  }
  there.put(at::Tensor());
  process.join();
  for (const MessageSize& size : kRoundTripSizes)
    shoal_case(bytes_case(size), bytes_round_trips(size.bytes, size.round_trips, busy));
  shoal_case(kBytesAsleep, bytes_round_trips(64, kAsleepRoundTrips, asleep));
  report.ask(kBytesAsleep, "p50", "futex", 1 / 1.3);
  if (!peers) return 0;
  const std::string question = "queue_round_trip";
  report.run_program("unix_socket", {question});
  report.run_program("boost_message_queue", {question});
  report.run_program("zeromq", {question}, "libzmq3-dev");
  report.run_program("iceoryx", {question}, "iceoryx");
  report.run_peer("ipc/" + question);
}
