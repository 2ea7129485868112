// How long does a message take to another process and back? A child echoes what it gets: tensors that are shared
// already, private ones (copied once), lent ones, and bytes (copied in and out); hot, and with both sides asleep
// between messages. The peers are torch.multiprocessing with both of its strategies and other systems' queues; the
// floors a futex, a cache line and memcpy.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/sync/futex.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <atomic>
#include <cstring>
#include <new>

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
  auto floor_cases = [&](const std::string& case_name, int count, bool spin) {
    report.add_quantile(spin ? "cache line" : "futex", case_name, "us",
                        floor_round_trips(count, spin, spin ? busy : asleep), 50);
  };
  auto shoal_case = [&](const std::string& case_name, const std::vector<double>& samples) {
    for (int percent : {50, 99}) report.add_quantile("shoal", case_name, "us", samples, percent);
  };
  const std::string tensor_asleep = "shared tensor 4 KiB, both asleep";
  floor_cases("shared tensor 64 B, busy", 100'000, true);
  floor_cases(tensor_asleep, kAsleepRoundTrips, false);
  floor_cases(kBytesAsleep, kAsleepRoundTrips, false);
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
  shoal_case(tensor_asleep, times(kAsleepRoundTrips, asleep, [&] {
               there.put(tensor);
               back.get();
             }));
  floor_cases(tensor_asleep, kAsleepRoundTrips, false);  // again: the machine may be another one by now
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
  report.ask(tensor_asleep, "p50", "futex", 1 / 1.3);
  report.ask(kBytesAsleep, "p50", "futex", 1 / 1.3);
  if (!peers) return 0;
  const std::string question = "queue_round_trip";
  report.run_program("unix_socket", {question});
  report.run_program("boost_message_queue", {question});
  report.run_program("zeromq", {question}, "libzmq3-dev");
  report.run_program("iceoryx", {question}, "iceoryx");
  report.run_peer(question);
}
