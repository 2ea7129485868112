// How long does it take to start a process that runs an empty function, and to join it? Each start method beside
// torch.multiprocessing's, a bare fork of this process, and an exec of this program; cold and warm, from a spare, up to
// 64 at once, and from parents with much memory.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/barrier.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "bench/report/report.h"

namespace {

using shoal::StartMethod;
using shoal::bench::Report;
using Samples = std::vector<double>;

constexpr StartMethod kMethods[] = {StartMethod::spawn, StartMethod::forkserver, StartMethod::fork};
constexpr const char *kBareFork = "bare fork and exit", *kBareExec = "exec and load of libtorch";
constexpr double kForks = 1 / 1.5, kExecs = 1 / 1.15, kThirtyTwo = 1 / 8.;  // what is asked: times the floor

struct Options {
  int percent = 100;  // of the usual number of samples
  int most = 64;      // children at once
  bool peers = true;
};

void nothing() {}

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Stays until all are ready, as workers do: the end of one is no part of the start of another.
std::int64_t ready_in_rank(int, shoal::Barrier all) {
  const std::int64_t ready = now();
  all.wait();
  return ready;
}

double milliseconds(const std::function<void()>& call) { return 1e3 * shoal::bench::seconds(call); }

void start_and_join(StartMethod method) {
  shoal::Process process({.name = "empty", .start_method = method}, nothing);
  process.start();
  process.join();
}

void bare_fork() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
}

/// `count` forks, until the last one's first instruction. All stay until all have come so far.
double milliseconds_of_forks(int count) {
  const std::size_t bytes = sizeof(std::int64_t) * std::size_t(count);
  auto* seen =
      static_cast<std::int64_t*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int ends[2];
  if (::pipe(ends) != 0) return 0;
  std::vector<pid_t> children(std::size_t(count), 0);
  const std::int64_t before = now();
  for (int i = 0; i < count; ++i)
    if (children[std::size_t(i)] = ::fork(); children[std::size_t(i)] == 0) {
      seen[i] = now();
      if (::write(ends[1], "", 1) == 1) ::pause();
      ::_exit(1);
    }
  for (char byte; count > 0 && ::read(ends[0], &byte, 1) == 1; --count) continue;
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  const double milliseconds = double(*std::max_element(seen, seen + children.size()) - before) * 1e-6;
  for (const int end : ends) ::close(end);
  ::munmap(seen, bytes);
  return milliseconds;
}

/// This program again, `count` times at once, which loads libtorch and ends at once.
void bare_execs(int count) {
  char name[] = "process_start", argument[] = "--only-load";
  char* arguments[] = {name, argument, nullptr};
  std::vector<pid_t> children(std::size_t(count), 0);
  for (pid_t& child : children)
    if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) child = 0;
  for (const pid_t child : children)
    if (child != 0) ::waitpid(child, nullptr, 0);
}

void bare_exec() { bare_execs(1); }

class Bench {
 public:
  Bench(Report& report, const Options& options) : report_(report), options_(options) {}

  /// The floor and shoal in turns, so that both see the same machine.
  void in_turns(const std::string& name, const char* floor_name, const std::function<void()>& floor,
                const std::function<void()>& ours, int usual, double asked) {
    Samples floors, samples;
    ours();  // what is made once a process
    for (int i = 0; i < count(usual); ++i) {
      floors.push_back(milliseconds(floor));
      samples.push_back(milliseconds(ours));
    }
    report_.add(floor_name, name, "ms", floors);
    report_.add("shoal", name, "ms", samples);
    report_.ask(name, "median", floor_name, asked);
  }

  /// Start and join of one, warm, by each method; `from` says from where.
  void one_by_each_method(const std::string& from) {
    in_turns("spawn" + from, kBareExec, &bare_exec, [] { start_and_join(StartMethod::spawn); }, 15, kExecs);
    in_turns("fork" + from, kBareFork, &bare_fork, [] { start_and_join(StartMethod::fork); }, 200, kForks);
    // Not from spares: after 2 ms without work the server would make one.
    keep_spares(0);
    auto by_server = [] { start_and_join(StartMethod::forkserver); };
    if (from.empty()) {
      in_turns("forkserver", kBareFork, &bare_fork, by_server, 200, kForks);
    } else {
      // The floor is that of a small process, as the server is one.
      by_server();
      report_.add("shoal", "forkserver" + from, "ms", repeat(100, by_server));
      report_.ask_of_case("forkserver" + from, "median", "forkserver", kForks);
    }
    shoal::start_fork_server({});
  }

  /// The server's heap moved aside or as it is, by turns: each server is fresh, and has had time to do it.
  void frozen_or_not() {
    constexpr int kTurns = 4;
    Samples frozen, as_it_is;
    for (int turn = 0; turn < kTurns; ++turn)
      for (const bool freeze : {true, false}) {
        end_server();
        shoal::start_fork_server({.spares = 0, .freeze_heap = freeze});
        std::this_thread::sleep_for(std::chrono::milliseconds(800));
        for (int i = 0; i < count(200) / kTurns; ++i)
          (freeze ? frozen : as_it_is).push_back(milliseconds([] { start_and_join(StartMethod::forkserver); }));
      }
    report_.add("heap as it is", "forkserver, frozen heap or not", "ms", as_it_is);
    report_.add("shoal", "forkserver, frozen heap or not", "ms", frozen);
    end_server();
    shoal::start_fork_server({});  // as the others are: the next one has what the last one was started with
  }

  /// The server is started for these.
  void cold(const std::string& from) {
    const std::string by = "forkserver, cold" + from;
    Samples floors, samples;
    for (int i = 0; i < count(7); ++i) {
      end_server();
      floors.push_back(milliseconds(&bare_exec));
      samples.push_back(milliseconds([] { start_and_join(StartMethod::forkserver); }));
    }
    report_.add(kBareExec, by, "ms", floors);
    report_.add("shoal", by, "ms", samples);
    if (options_.most < 32) return;
    for (const int nprocs : {1, 32}) {
      Samples ready;
      for (int i = 0; i < count(7); ++i) {
        end_server();
        ready.push_back(start_and_join_many(nprocs, StartMethod::forkserver).first);
      }
      report_.add("shoal", fmt::format("{} ready, {}", nprocs, by), "ms", ready);
    }
    report_.ask_of_case("32 ready, " + by, "median", "1 ready, " + by, kThirtyTwo);
  }

  /// From start() to the first instruction of the function, in another process, which notes the time itself.
  void until_function(const std::string& from) {
    const std::string name = "until the function runs";
    const int usual = from.empty() ? 60 : 20;
    report_.add("bare fork", name + from, "ms", forks(1, usual));
    report_.add("shoal, fork", name + from, "ms", to_function(StartMethod::fork, usual));
    keep_spares(0);
    report_.add("shoal, forkserver", name + from, "ms", to_function(StartMethod::forkserver, usual));
    keep_spares(2);
    report_.add("shoal", name + ", from a spare" + from, "ms", to_function(StartMethod::forkserver, usual));
    report_.ask_value(name + ", from a spare" + from, "median", 0.5);
    if (from.empty()) report_.add("shoal, spawn", name, "ms", to_function(StartMethod::spawn, 10));
  }

  /// With time for what the server does when it is idle.
  static void keep_spares(int spares) {
    shoal::start_fork_server({.spares = spares});
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
  }

  /// Until the last one's function runs, and until all are joined. Without spares; then with one for each.
  void many(StartMethod method, int spares, const std::string& from) {
    const std::string by = fmt::format("{}{}{}", shoal::method_name(method), spares > 0 ? " with spares" : "", from);
    const int usual = method == StartMethod::spawn ? 3 : from.empty() ? 10 : 3;
    // A virtual machine's memory is slow for those that use it first; not for the floors alone.
    if (method == StartMethod::spawn) bare_execs(options_.most);
    for (int nprocs = 1; nprocs <= options_.most; nprocs *= 2) {
      if (!from.empty() && nprocs != 1 && nprocs != 8 && nprocs != 64) continue;
      if (method == StartMethod::forkserver) keep_spares(spares > 0 ? nprocs : 0);
      Samples ready, joined;
      for (int i = 0; i < count(usual); ++i) {
        // Time for the spares; for the others too, so that both start from the same state.
        std::this_thread::sleep_for(std::chrono::milliseconds(20 + (spares > 0 ? 5 * nprocs : 0)));
        const auto [until_ready, until_joined] = start_and_join_many(nprocs, method);
        ready.push_back(until_ready);
        joined.push_back(until_joined);
      }
      report_.add("shoal", fmt::format("{} ready, {}", nprocs, by), "ms", ready);
      report_.add("shoal", fmt::format("{} joined, {}", nprocs, by), "ms", joined);
    }
    if (from.empty()) ask_of_many(by, method, usual);
  }

  /// 32 beside as many bare ones, and beside one. Nothing that keeps a CPU busy can be done 32 times by two CPUs in
  /// less than 16 times the time that it takes once.
  void ask_of_many(const std::string& by, StartMethod method, int usual) {
    if (options_.most < 32) return;
    const bool execs = method == StartMethod::spawn;
    const char* floor = execs ? "32 execs and loads" : "32 bare forks";
    report_.add(floor, "32 ready, " + by, "ms", execs ? repeat(usual, [] { bare_execs(32); }) : forks(32, usual));
    report_.ask_of_case("32 ready, " + by, "median", fmt::format("1 ready, {}", shoal::method_name(method)),
                        kThirtyTwo);
  }

  /// Private memory of the fork server's spares, of each.
  void memory_of_spares(int spares) {
    const pid_t server = shoal::start_fork_server({.spares = spares});
    std::this_thread::sleep_for(std::chrono::milliseconds(100 * spares));
    Samples megabytes;
    std::ifstream children(fmt::format("/proc/{}/task/{}/children", server, server));
    for (pid_t pid; children >> pid;) {
      std::ifstream rollup(fmt::format("/proc/{}/smaps_rollup", pid));
      std::string word;
      while (rollup >> word)
        if (double kilobytes; (word == "Private_Dirty:") && rollup >> kilobytes) megabytes.push_back(kilobytes / 1024);
    }
    if (!megabytes.empty()) report_.add("shoal", "memory of a spare", "MB", megabytes);
  }

  void all(const std::string& from) {
    one_by_each_method(from);
    if (from.empty()) frozen_or_not();
    cold(from);
    until_function(from);
    for (const StartMethod method : kMethods) many(method, 0, from);
    many(StartMethod::forkserver, 1, from);
  }

 private:
  int count(int usual) const { return std::max(1, usual * options_.percent / 100); }

  /// It dies, and the next start makes another one.
  static void end_server() {
    const shoal::Fd server = shoal::open_pidfd(shoal::start_fork_server());
    shoal::send_signal(server, SIGKILL);
    const int descriptor = server.get();
    shoal::wait_readable({&descriptor, 1}, shoal::Deadline::never());
  }

  /// Milliseconds until the last one's function runs, and until all are joined.
  static std::pair<double, double> start_and_join_many(int nprocs, StartMethod method) {
    const std::int64_t before = now();
    const auto times = shoal::spawn({.nprocs = nprocs, .start_method = method}, ready_in_rank, shoal::Barrier(nprocs));
    return {double(*std::max_element(times.begin(), times.end()) - before) * 1e-6, double(now() - before) * 1e-6};
  }

  Samples repeat(int usual, const std::function<void()>& call) const {
    Samples samples;
    for (int i = 0; i < count(usual); ++i) samples.push_back(milliseconds(call));
    return samples;
  }

  Samples to_function(StartMethod method, int usual) const {
    Samples samples;
    for (int i = 0; i < count(usual); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // as a program that has other things to do
      shoal::Process process({.name = "empty", .start_method = method}, now);
      const std::int64_t before = now();
      process.start();
      samples.push_back(double(process.result() - before) * 1e-6);
    }
    return samples;
  }

  Samples forks(int children, int usual) const {
    Samples samples;
    for (int i = 0; i < count(usual); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      samples.push_back(milliseconds_of_forks(children));
    }
    return samples;
  }

  Report& report_;
  const Options& options_;
};

/// Written to, and this process's alone: a fork of it copies its page tables.
class Ballast {
 public:
  explicit Ballast(std::size_t bytes)
      : bytes_(bytes), at_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED) throw std::bad_alloc();
    ::madvise(at_, bytes_, MADV_NOHUGEPAGE);  // the worst case, and the same on every machine
    ::memset(at_, 1, bytes_);
  }
  ~Ballast() { ::munmap(at_, bytes_); }
  Ballast(const Ballast&) = delete;

 private:
  std::size_t bytes_;
  void* at_;
};

bool fits(std::size_t bytes) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word)
    if (std::size_t kib; word == "MemAvailable:" && file >> kib) return bytes + bytes / 4 < kib << 10;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && ::strcmp(argv[1], "--only-load") == 0) ::_exit(0);
  shoal::init(argc, argv);
  CLI::App app("start and join of processes, beside bare forks and execs");
  Options options;
  std::vector<std::size_t> megabytes{100, 8000};
  app.add_option("--parents", megabytes, "memory of the larger parents, in MB; 0: none")->delimiter(',');
  app.add_option("--percent", options.percent, "of the usual number of samples")->check(CLI::Range(1, 1000));
  app.add_option("--most", options.most, "children at once")->check(CLI::Range(1, 1000));
  app.add_flag("--peers,!--no-peers", options.peers, "run the peers too");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);  // a thread pool of libtorch's would keep `fork` from being used
  (void)at::ones({2}).sum().item<float>();
  Report report("process_start");
  Bench bench(report, options);
  bench.all("");
  bench.memory_of_spares(4);
  for (const std::size_t size : megabytes) {
    if (size == 0) continue;
    if (!fits(size * 1'000'000)) {
      fmt::print("# a parent of {} MB: not enough memory is left on this machine\n", size);
      continue;
    }
    const Ballast ballast(size * 1'000'000);
    const bool whole = size % 1000 == 0;
    bench.all(fmt::format(", from a parent of {} {}", whole ? size / 1000 : size, whole ? "GB" : "MB"));
  }
  if (options.peers) report.run_peer("runtime/process_start");
}
