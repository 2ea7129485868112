#include "bench/peers/ipc/transport.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "bench/report/message_cases.h"
#include "bench/report/report.h"

namespace shoal::bench {
namespace {

using Micros = std::chrono::duration<double, std::micro>;

pid_t fork_child(const std::function<void()>& work) {
  const pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  int code = 0;
  try {
    work();
  } catch (const std::exception& error) {
    fmt::print(stderr, "# peer: {}\n", error.what());
    code = 1;
  }
  std::exit(code);  // not _exit: iceoryx says goodbye to its daemon in a destructor
}

void print(const std::string& bench, Figure figure, std::vector<double> samples, int percent) {
  std::sort(samples.begin(), samples.end());
  figure.value = samples[std::min(samples.size() - 1, samples.size() * std::size_t(percent) / 100)];
  figure.min = samples.front();
  figure.max = samples.back();
  figure.n = samples.size();
  fmt::print("{}\n", json_line(bench, figure));
  ::fflush(stdout);
}

template <class T>
T* shared_array(std::size_t count) {
  void* at = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::runtime_error("mmap failed");
  return static_cast<T*>(at);
}

/// Both sides are children: what a transport keeps in its process is made afresh each time.
std::vector<double> round_trips(const Transport& transport, std::size_t bytes, int count, int pause_micros) {
  auto there = transport.make({.largest = bytes, .capacity = 8});
  auto back = transport.make({.largest = bytes, .capacity = 8});
  const int all = count + count / 10 + 1;
  auto* times = shared_array<double>(std::size_t(all));
  pid_t echo = fork_child([&] {
    auto in = there->consumer(0), out = back->producer(0);
    std::vector<std::byte> message(bytes);
    for (int i = 0; i < all; ++i) {
      in->receive(message);
      out->send(message);
    }
    ::usleep(300'000);  // some transports forget what their process sent last
  });
  pid_t asker = fork_child([&] {
    auto in = back->consumer(0), out = there->producer(0);
    std::vector<std::byte> message(bytes, std::byte(1));
    for (int i = 0; i < all; ++i) {
      if (pause_micros > 0) ::usleep(useconds_t(pause_micros));
      auto start = std::chrono::steady_clock::now();
      out->send(message);
      in->receive(message);
      times[i] = Micros(std::chrono::steady_clock::now() - start).count();
    }
  });
  for (pid_t child : {asker, echo}) ::waitpid(child, nullptr, 0);
  std::vector<double> samples(times + (all - count), times + all);
  ::munmap(times, std::size_t(all) * sizeof(double));
  return samples;
}

/// Messages a second of each round but the first.
std::vector<double> rates(const Transport& transport, const Flow& flow, int sides, bool loaned) {
  auto way = transport.make({.largest = flow.bytes, .capacity = flow.in_queue, .producers = sides, .consumers = sides});
  auto* barrier = shared_array<pthread_barrier_t>(1);
  pthread_barrierattr_t attributes;
  ::pthread_barrierattr_init(&attributes);
  ::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_barrier_init(barrier, &attributes, unsigned(2 * sides + 1));
  const int each = flow.messages / sides;
  std::vector<pid_t> children;
  for (int i = 0; i < 2 * sides; ++i)
    children.push_back(fork_child([&] {
      const bool produces = i >= sides;
      auto end = produces ? way->producer(i - sides) : way->consumer(i);
      std::vector<std::byte> message(flow.bytes, std::byte(1));
      for (int round = 0; round <= kRounds; ++round) {
        ::pthread_barrier_wait(barrier);
        for (int k = 0; k < each; ++k) {
          if (loaned && produces) end->send_loaned(flow.bytes);
          if (loaned && !produces) end->receive_loaned(flow.bytes);
          if (!loaned && produces) end->send(message);
          if (!loaned && !produces) end->receive(message);
        }
        ::pthread_barrier_wait(barrier);
      }
    }));
  std::vector<double> samples;
  for (int round = 0; round <= kRounds; ++round) {
    ::pthread_barrier_wait(barrier);
    auto start = std::chrono::steady_clock::now();
    ::pthread_barrier_wait(barrier);
    double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (round > 0) samples.push_back(each * sides / took);
  }
  for (pid_t child : children) ::waitpid(child, nullptr, 0);
  ::munmap(barrier, sizeof *barrier);
  return samples;
}

void answer_throughput(const std::string& bench, const Transport& transport) {
  for (int sides : {1, 2, 4}) {
    if (sides > 1 && !transport.many_to_many) continue;
    Flow flow = kSmallFlow;
    flow.messages /= transport.name == "zeromq" ? 1 : 4;  // most are slower than that by far
    print(bench, {transport.name, flow_case(flow, sides), "median", "1/s", 0, 0, 0, 0},
          rates(transport, flow, sides, false), 50);
  }
  for (Flow flow : {kMegabyteFlow, kLargeFlow}) {
    if (flow.bytes > transport.largest) continue;
    flow.messages = std::max(4, flow.messages / 4);
    auto samples = rates(transport, flow, 1, false);
    for (double& sample : samples) sample *= double(flow.bytes) / 1e9;
    print(bench, {transport.name, flow_case(flow), "median", "GB/s", 0, 0, 0, 0}, samples, 50);
  }
  if (transport.loans)
    print(bench, {transport.name, flow_case(kLoanFlow), "median", "1/s", 0, 0, 0, 0},
          rates(transport, kLoanFlow, 1, true), 50);
}

}  // namespace

void End::send_loaned(std::size_t) { throw std::logic_error("this peer does not lend memory"); }
void End::receive_loaned(std::size_t) { throw std::logic_error("this peer does not lend memory"); }

int answer(const std::string& question, const Transport& transport) {
  if (question == "queue_round_trip") {
    for (const MessageSize& size : kRoundTripSizes)
      if (size.bytes <= transport.largest && size.bytes > 0)
        print(question, {transport.name, bytes_case(size), "p50", "us", 0, 0, 0, 0},
              round_trips(transport, size.bytes, std::min(size.round_trips, 5'000), 0), 50);
    print(question, {transport.name, kBytesAsleep, "p50", "us", 0, 0, 0, 0},
          round_trips(transport, 64, kAsleepRoundTrips, kAsleepMicros), 50);
  } else if (question == "pipe") {
    print(question, {transport.name, kPipeOfInt, "p50", "us", 0, 0, 0, 0},
          round_trips(transport, sizeof(int), 5'000, 0), 50);
  } else if (question == "queue_throughput") {
    answer_throughput(question, transport);
  } else {
    fmt::print(stderr, "say queue_round_trip, queue_throughput or pipe\n");
    return 2;
  }
  return 0;
}

}  // namespace shoal::bench
