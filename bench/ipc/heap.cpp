// What does it cost to allocate shared memory and to free it again, of any size, alone and with 64 processes attached?
// Peers: malloc (private memory), Boost's managed_shared_memory, torch's shared storages (one file each).
#include <shoal/ipc/heap.h>

#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/interprocess/managed_shared_memory.hpp>
#include <cstdlib>

#include "bench/report/report.h"

namespace {

namespace ipc = boost::interprocess;

struct Size {
  std::size_t bytes;
  const char* name;
};
constexpr Size kSizes[] = {{16, "16 B"},       {4096, "4 KiB"},      {64 << 10, "64 KiB"},
                           {1 << 20, "1 MiB"}, {64 << 20, "64 MiB"}, {1ul << 30, "1 GiB"}};
constexpr int kBatches = 200, kPerBatch = 200;

void keep(void* pointer) { asm volatile("" : : "r"(pointer) : "memory"); }

/// Nanoseconds a pair, one sample a batch.
template <class Pair>
std::vector<double> measure(Pair&& pair, int per_batch = kPerBatch) {
  for (int i = 0; i < per_batch; ++i) pair();
  std::vector<double> samples;
  for (int batch = 0; batch < kBatches; ++batch)
    samples.push_back(shoal::bench::seconds([&] {
                        for (int i = 0; i < per_batch; ++i) pair();
                      }) *
                      1e9 / per_batch);
  return samples;
}

std::string case_of(const Size& size) { return std::string("allocate and free ") + size.name; }

void run_shoal(shoal::bench::Report& report, const char* impl) {
  for (const Size& size : kSizes)
    report.add(impl, case_of(size), "ns", measure([&] { keep(shoal::allocate_shared(size.bytes).data()); }));
}

/// Processes that are part of the session, have blocks of their own, and sleep.
class Attached {
 public:
  explicit Attached(int count) {
    const pid_t parent = ::getpid();
    for (int i = 0; i < count; ++i) {
      int ready[2];
      if (::pipe(ready) != 0) std::abort();
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(0);
        std::vector<shoal::Hold> blocks;
        for (const Size& size : kSizes)
          if (size.bytes < 1u << 20) blocks.push_back(shoal::allocate_shared(size.bytes));
        (void)!::write(ready[1], "r", 1);
        for (;;) ::pause();
      }
      char byte;
      (void)!::read(ready[0], &byte, 1);
      ::close(ready[0]);
      ::close(ready[1]);
      pids_.push_back(pid);
    }
  }
  ~Attached() {
    for (pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
    shoal::Session::current().reclaim_all();
  }

 private:
  std::vector<pid_t> pids_;
};

void run_boost(shoal::bench::Report& report) {
  const std::string name = "shoal-bench-" + std::to_string(::getpid());
  ipc::shared_memory_object::remove(name.c_str());
  {
    ipc::managed_shared_memory memory(ipc::create_only, name.c_str(), (1ul << 30) + (16u << 20));
    for (const Size& size : kSizes)
      report.add("boost managed_shared_memory", case_of(size), "ns", measure([&] {
                   void* at = memory.allocate(size.bytes);
                   keep(at);
                   memory.deallocate(at);
                 }));
  }
  ipc::shared_memory_object::remove(name.c_str());
}

}  // namespace

int main() {
  shoal::bench::Report report("heap");
  run_shoal(report, "shoal");
  {
    Attached others(64);
    run_shoal(report, "shoal, 64 processes attached");
  }
  for (const Size& size : kSizes)
    report.add("malloc (private)", case_of(size), "ns", measure([&] {
                 void* at = std::malloc(size.bytes);
                 keep(at);
                 std::free(at);
               }));
  run_boost(report);
  report.run_peer("ipc/heap");
}
