#include <shoal/internal/runtime/fork_server/frozen_heap.h>

#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/hooks.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/start/methods.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

namespace shoal {
namespace {

/// 12 MB in blocks so small that they lie in malloc's heap.
class ManyBlocks {
 public:
  ManyBlocks() {
    for (std::uint64_t i = 0; i < 12'000; ++i) blocks_.emplace_back(125, i);
  }
  bool are_whole() const {
    for (std::uint64_t i = 0; i < blocks_.size(); ++i)
      if (blocks_[i] != std::vector<std::uint64_t>(125, i)) return false;
    return true;
  }
  void scribble() {
    for (auto& block : blocks_) block.assign(block.size(), ~0ull);
  }
  void drop_every_other() {
    for (std::size_t i = 0; i < blocks_.size(); i += 2) std::vector<std::uint64_t>().swap(blocks_[i]);
    for (std::size_t i = 0; i < blocks_.size(); i += 2) blocks_[i].assign(125, i);
  }

 private:
  std::vector<std::vector<std::uint64_t>> blocks_;
};

void expect(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

bool has_frozen_heap(const std::string& pid) {
  std::ifstream mappings("/proc/" + pid + "/maps");
  for (std::string line; std::getline(mappings, line);)
    if (line.find(FrozenHeap::kName) != std::string::npos) return true;
  return false;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their malloc is not glibc's

/// In kB, of this process: pages that are its own.
long own_pages() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (long kilobytes = 0; word == "RssAnon:" && status >> kilobytes) return kilobytes;
  throw std::runtime_error("no RssAnon in /proc/self/status");
}

TEST_CASE("frozen heap: what is in it stays, and malloc goes on") {
  test::Forked child([] {
    ManyBlocks before;
    FrozenHeap heap;
    int pieces = 0;
    for (; !heap.is_done(); ++pieces) heap.freeze_piece();
    expect(pieces >= 3, "12 MB in pieces of 4");
    expect(has_frozen_heap("self"), "a mapping of its name");
    expect(before.are_whole(), "nothing is lost");
    before.drop_every_other();
    const ManyBlocks after;
    expect(before.are_whole() && after.are_whole(), "blocks are freed and made");
    heap.freeze_piece();  // nothing is left to do
    expect(before.are_whole(), "once more");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("frozen heap: one with transparent huge pages stays as it is") {
  test::Forked child([] {
    ManyBlocks blocks;
    // The heap's end, in whole huge pages: what the kernel does by itself with `always`.
    constexpr std::uintptr_t kHuge = 2u << 20;
    const auto end = reinterpret_cast<std::uintptr_t>(::sbrk(0)) / kHuge * kHuge;
    auto* place = reinterpret_cast<void*>(end - 2 * kHuge);
    constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1
    if (::madvise(place, 2 * kHuge, kCollapse) != 0)
      return void(std::fputs("no huge pages to be had: not tested\n", stderr));
    FrozenHeap heap;
    expect(heap.is_done(), "nothing is to be moved");
    expect(heap.obstacle() == "it has transparent huge pages", "and it says why");
    expect(!has_frozen_heap("self"), "nothing was");
    expect(blocks.are_whole(), "nothing is lost");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("frozen heap: between its pieces the process runs and forks as ever") {
  test::Forked child([] {
    ManyBlocks blocks;
    for (FrozenHeap heap; !heap.is_done(); heap.freeze_piece()) {
      blocks.drop_every_other();
      test::Forked grandchild([&] {
        heap.stop();
        expect(heap.is_done(), "none of the child's business");
        expect(blocks.are_whole(), "as it was at the fork");
        blocks.scribble();
      });
      expect(grandchild.join() == 0, "the grandchild is content");
      expect(blocks.are_whole(), "what a child writes is its own");
    }
  });
  CHECK(child.join() == 0);
}

TEST_CASE("frozen heap: a fork has none of its pages until it writes to them") {
  test::Forked child([] {
    ManyBlocks blocks;
    const long all = own_pages();
    expect(all > 12'000, "12 MB at least");
    test::Forked([&] { expect(own_pages() > 12'000, "before, a fork has them all"); }).join();
    for (FrozenHeap heap; !heap.is_done();) heap.freeze_piece();
    expect(own_pages() < all - 10'000, "they are the file's now");
    test::Forked grandchild([&] {
      expect(own_pages() < all - 10'000, "none is copied");
      expect(blocks.are_whole(), "they are there to be read");
      expect(own_pages() < all - 10'000, "to read is not to own");
      blocks.scribble();
      expect(own_pages() > 12'000, "what it writes is its own");
    });
    expect(grandchild.join() == 0, "the grandchild is content");
    expect(blocks.are_whole(), "and not its parent's");
  });
  CHECK(child.join() == 0);
}

const ManyBlocks* preloaded = nullptr;

constexpr const char* kThreadInServer = "SHOAL_TEST_THREAD_IN_SERVER";

// In the fork server of all tests of this program: so it has something to freeze.
const bool settings_registered = [] {
  register_preload([] {
    preloaded = new ManyBlocks;
    if (!std::getenv(kThreadInServer)) return;
    // One of shoal's own, which does not keep the server from forking.
    start_service_thread("counting", [numbers = new std::vector<std::uint64_t>(1)] {
      for (;;) {
        ++numbers->front();
        std::this_thread::yield();
      }
    });
  });
  return true;
}();

void end_server() {
  const Fd old = open_pidfd(start_fork_server());
  send_signal(old, SIGKILL);
  const int descriptor = old.get();
  wait_readable({&descriptor, 1}, Deadline::never());
}

int count_children(pid_t server) {
  int count = 0;
  std::ifstream children("/proc/" + std::to_string(server) + "/task/" + std::to_string(server) + "/children");
  for (pid_t pid; children >> pid;) ++count;
  return count;
}

void wait_until_frozen(pid_t server) {
  while (!has_frozen_heap(std::to_string(server))) std::this_thread::yield();
}

TEST_CASE("fork server: with nobody to serve it freezes its heap, where its children find all that it has") {
  wait_until_frozen(start_fork_server());
  // From the spares, and forked for the purpose.
  auto sees_it = [](int) { return preloaded->are_whole() && has_frozen_heap("self"); };
  const auto seen = spawn({.nprocs = 6, .start_method = StartMethod::forkserver}, sees_it);
  CHECK(std::count(seen.begin(), seen.end(), true) == 6);
}

TEST_CASE("fork server: it does not freeze its heap while it has children, and does when they are gone") {
  end_server();
  Queue<int> ready(1), go(1);
  // Asked for before there is a server: so it is served first.
  auto context = start_processes(
      {.start_method = StartMethod::forkserver},
      [](int, Queue<int> to, Queue<int> until) {
        to.put(1);
        until.get();
        return preloaded->are_whole();
      },
      ready, go);
  ready.get();
  const pid_t server = start_fork_server();
  test::allow_child(server);
  // Idle long enough for what comes after the heap.
  while (count_children(server) < 3) std::this_thread::yield();
  CHECK_FALSE(has_frozen_heap(std::to_string(server)));
  go.put(1);
  CHECK(context.join(std::chrono::minutes(1)));
  wait_until_frozen(server);
}

TEST_CASE("fork server: it does not freeze its heap where it was told not to") {
  end_server();
  const pid_t server = start_fork_server({.freeze_heap = false});
  test::allow_child(server);
  while (count_children(server) < 2) std::this_thread::yield();  // spares come after the heap
  CHECK_FALSE(has_frozen_heap(std::to_string(server)));
  end_server();
  const pid_t usual = start_fork_server(ForkServerOptions{});  // for the tests that follow
  test::allow_child(usual);
  wait_until_frozen(usual);
}

TEST_CASE(
    "fork server: it does not freeze its heap beside a thread, which would write to it, not even one of shoal's") {
  end_server();
  ::setenv(kThreadInServer, "1", 1);
  spawn({.start_method = StartMethod::forkserver}, [](int) {});  // finds the old one dead, and makes this one
  const pid_t server = start_fork_server();
  ::unsetenv(kThreadInServer);
  test::allow_child(server);
  // Spares come after the heap.
  while (count_children(server) < 2) std::this_thread::yield();
  CHECK_FALSE(has_frozen_heap(std::to_string(server)));
  const auto seen =
      spawn({.nprocs = 3, .start_method = StartMethod::forkserver}, [](int) { return preloaded->are_whole(); });
  CHECK(seen == std::vector<bool>{true, true, true});
  end_server();
  spawn({.start_method = StartMethod::forkserver}, [](int) {});
  test::allow_child(start_fork_server());
}

#endif

TEST_CASE("frozen heap: where files are limited there is nothing to do") {
  test::Forked child([] {
    const ManyBlocks blocks;
    const rlimit limit{1 << 20, 1 << 20};
    expect(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "a limit");
    FrozenHeap heap;
    expect(heap.is_done(), "it says so");
    heap.freeze_piece();
    expect(blocks.are_whole() && !has_frozen_heap("self"), "all is as before");
  });
  CHECK(child.join() == 0);
}

}  // namespace
}  // namespace shoal
