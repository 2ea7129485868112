// How queues and pipes wait: without the kernel where they can, fairly, and not at all while asleep.
#include <linux/seccomp.h>
#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/shared_bytes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <numeric>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

using namespace shoal;
using namespace std::chrono_literals;
using shoal::test::Forked;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// From here on any system call but read, write and exit is the end of the process.
static void forbid_system_calls() { ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT); }
static void end_of_process() { ::syscall(SYS_exit, 0); }

TEST_CASE("waiting: messages pass without a system call while nobody sleeps") {
  const int kind = GENERATE(0, 1, 2, 3);
  CAPTURE(kind);
  Forked child([&] {
    Queue<std::string> queue(8);
    Pipe<std::string> pipe;
    Queue<SharedBytes> loans(8);
    const std::string text(kind == 1 ? 3000 : 10, 'x');
    auto pass = [&] {
      if (kind < 2) {
        queue.put(text);
        queue.put(text);
        queue.get();
        queue.get();
      } else if (kind == 2) {
        pipe.first.send(text);
        pipe.second.recv();
      } else {
        loans.put(loans.loan(100'000));
        loans.get();
      }
    };
    for (int i = 0; i < 20; ++i) pass();  // blocks are cached now
    forbid_system_calls();
    for (int i = 0; i < 1000; ++i) pass();
    end_of_process();
  });
  CHECK(child.join() == 0);
}

TEST_CASE("waiting: the seccomp filter of the test above does kill where there is a system call") {
  Forked child([&] {
    Queue<int> queue(1);
    forbid_system_calls();
    try {
      queue.get(200ms);  // sleeps
    } catch (const TimeoutError&) {
    }
    end_of_process();
  });
  CHECK(child.join() < 0);  // SIGKILL or SIGSEGV, as the kernel has it
}
#endif

TEST_CASE("waiting: all that wait are woken, however many messages come at once") {
  constexpr int kWaiters = 6;
  Queue<int> queue(64), done(64);
  std::vector<std::unique_ptr<Forked>> waiters;
  for (int i = 0; i < kWaiters; ++i)
    waiters.push_back(std::make_unique<Forked>([&] {
      int number = queue.get();
      done.put(number);
    }));
  for (int i = 0; i < kWaiters; ++i) queue.put(i);
  std::vector<int> numbers;
  for (int i = 0; i < kWaiters; ++i) numbers.push_back(done.get());
  std::sort(numbers.begin(), numbers.end());
  for (int i = 0; i < kWaiters; ++i) CHECK(numbers[std::size_t(i)] == i);
  for (auto& waiter : waiters) CHECK(waiter->join() == 0);
}

TEST_CASE("waiting: of many producers at a full queue, none waits for ever while the others go on") {
  constexpr int kProducers = 6;
  const int enough = 30;
  Queue<int> queue(2);
  Queue<int> stop(1);
  std::vector<std::unique_ptr<Forked>> producers;
  for (int p = 0; p < kProducers; ++p)
    producers.push_back(std::make_unique<Forked>([&, p] {
      try {
        for (;;) queue.put(p);
      } catch (const QueueClosed&) {
      }
    }));
  // Until each has got enough through; the watchdog ends it if one starves.
  std::vector<int> got(kProducers, 0);
  while (std::any_of(got.begin(), got.end(), [&](int n) { return n < enough; })) ++got[std::size_t(queue.get())];
  queue.close();
  for (auto& producer : producers) CHECK(producer->join() == 0);
}

TEST_CASE("waiting: eight processes hand a message around on however few cores there are") {
  constexpr int kProcesses = 8;
  const int laps = 100 * test::test_scale();
  std::vector<Queue<int>> ring;
  for (int i = 0; i < kProcesses; ++i) ring.emplace_back(1);
  std::vector<std::unique_ptr<Forked>> processes;
  for (std::size_t i = 1; i < kProcesses; ++i)
    processes.push_back(std::make_unique<Forked>([&, i] {
      for (int lap = 0; lap < laps; ++lap) ring[(i + 1) % kProcesses].put(ring[i].get() + 1);
    }));
  for (int lap = 0; lap < laps; ++lap) {
    ring[1].put(0);
    REQUIRE(ring[0].get() == kProcesses - 1);
  }
  for (auto& process : processes) CHECK(process->join() == 0);
}

TEST_CASE("waiting: a blocked get sleeps: it is hardly ever on a CPU") {
  Queue<int> queue(1);
  Queue<long> switches(1);
  Forked sleeper([&] {
    queue.get();
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    switches.put(usage.ru_nvcsw);
  });
  const auto start = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(1s);  // what is measured is what happens in a while
  queue.put(1);
  const long count = switches.get();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(double(count) < 30 + 12 * took.count());  // ten looks a second, and its start
  CHECK(sleeper.join() == 0);
}
