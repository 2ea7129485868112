// What do processes cost that wait on one queue and get nothing? Beside as many that only sleep on a bare futex for
// 0.2 s at a time, which is what waking up that often costs by itself.
#include <fmt/format.h>
#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "bench/report/report.h"

namespace {

/// Seconds that the process has been on a CPU.
double cpu_seconds(pid_t process) {
  clockid_t clock;
  timespec time{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

/// CPUs that `count` processes take that all do `wait`, which none comes back from, over `seconds`.
double cpus_of_waiters(int count, double seconds, const std::function<void()>& wait) {
  shoal::SessionCore& session = shoal::SessionCore::current();
  session.self();
  shoal::Hold hold = shoal::allocate_shared(sizeof(std::atomic<int>));
  auto* ready = new (hold.data()) std::atomic<int>{0};
  std::vector<pid_t> waiters;
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      session.self();
      session.adopt_inherited_holds();
      ++*ready;
      wait();
      ::_exit(0);
    }
    waiters.push_back(child);
  }
  while (*ready < count) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::seconds(1));  // until all of them sleep
  auto sum = [&] {
    double all = 0;
    for (pid_t waiter : waiters) all += cpu_seconds(waiter);
    return all;
  };
  const double before = sum();
  const double took =
      shoal::bench::seconds([&] { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); });
  const double used = sum() - before;
  for (pid_t waiter : waiters) ::kill(waiter, SIGKILL);
  for (pid_t waiter : waiters) ::waitpid(waiter, nullptr, 0);
  session.reclaim_all();
  return used / took;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  const int most = argc > 2 ? std::atoi(argv[2]) : 300;
  shoal::bench::Report report("idle_waiters");
  for (int count : {25, 100, 200, 300, 1000}) {
    if (count > most) break;
    const std::string case_name = fmt::format("{} processes wait on a queue", count);
    shoal::Queue<int> queue(8);
    report.add("shoal", case_name, "CPUs", {cpus_of_waiters(count, seconds, [&] { queue.get(); })});
    shoal::Hold hold = shoal::allocate_shared(sizeof(shoal::EventWord));
    auto* event = new (hold.data()) shoal::EventWord;
    report.add("bare futex, 5 times a second", case_name, "CPUs", {cpus_of_waiters(count, seconds, [&] {
                 for (;;) event->sleep(event->prepare(), std::chrono::milliseconds(200));
               })});
    if (count == 300) report.ask_value(case_name, "median", 0.02);
  }
}
