// Who keeps a device's memory, who gives it back, and what is left of it at each death.
#include <ATen/ATen.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Holds what it received until it is killed or told to let go.
template <class On>
void hold(Queue<at::Tensor> in, Event holding, Event let_go) {
  {
    at::Tensor received = in.get();
    (void)received.cpu();
    holding.set();
    let_go.wait();
  }
  ipc_collect();
}

/// Receives, reads, lets go and gives everything back, dying where it is told.
template <class On>
void die_receiving(std::string where, Queue<at::Tensor> in) {
  if (!where.empty()) kill_at(where.c_str());
  {
    at::Tensor received = in.get();
    (void)received.cpu();
  }
  ipc_collect();
}

template <class On>
void die_forwarding(std::string where, Queue<at::Tensor> in, Queue<at::Tensor> out) {
  at::Tensor received = in.get();
  if (!where.empty()) kill_at(where.c_str());
  out.put(received);
  ::raise(SIGKILL);
}

/// Sends one tensor and stays, unless it dies before.
template <class On>
void produce(std::string where, Queue<at::Tensor> out, Event done) {
  if (!where.empty()) kill_at(where.c_str());
  {
    at::Tensor tensor = at::full({100}, 4.0f).to(on<On>().device());
    out.put(tensor);
  }
  done.wait();
  wait_until_released(std::chrono::seconds(10));
}

/// The collector thread alone gives it back: nothing here calls ipc_collect().
template <class On>
bool exports_go(std::size_t bytes_before) {
  return eventually([&] { return device_ipc_statistics().exports == 0 && On::bytes_in_storages() == bytes_before; });
}

}  // namespace

DEVICE_TEST_CASE("memory is kept while anyone holds it, though the producer's tensor is gone, and not longer") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const std::size_t before = On::bytes_in_storages();
    Queue<at::Tensor> queue(4);
    Event holding, let_go;
    Process<void> process({.name = "holder"}, hold<On>, queue, holding, let_go);
    process.start();
    queue.put(at::full({1000}, 3.0f).to(on<On>().device()));
    holding.wait();
    ipc_collect();
    CHECK(device_ipc_statistics().exports == 1);
    CHECK(device_ipc_statistics().exported_bytes == 4000);
    CHECK(device_ipc_statistics().exported_bases == 1);
    CHECK(On::bytes_in_storages() >= before + 4000);
    let_go.set();
    process.result();
    CHECK(exports_go<On>(before));
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a holder killed by SIGKILL gives the memory back, and nobody has to ask for it") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const std::size_t before = On::bytes_in_storages();
    Queue<at::Tensor> queue(4);
    Event holding, let_go;
    Process<void> process({.name = "holder"}, hold<On>, queue, holding, let_go);
    process.start();
    queue.put(at::full({1000}, 3.0f).to(on<On>().device()));
    holding.wait();
    ::kill(process.pid(), SIGKILL);  // not through the handle, which would give back what it had when it is reaped
    CHECK(exports_go<On>(before));
    process.join();
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a receiver that dies at any marked point gives the memory back") {
  using On = TestType;
  if (skipped<On>()) return;
  for (const char* where : {"", "device.import.before_open", "device.import.opened", "device.release.closed",
                            "device.release.before_drop"}) {
    INFO("killed at " << where);
    const std::size_t before = On::bytes_in_storages();
    Queue<at::Tensor> queue(4);
    Process<void> process({.name = "receiver"}, die_receiving<On>, std::string(where), queue);
    process.start();
    queue.put(at::full({100}, 3.0f).to(on<On>().device()));
    CHECK(exports_go<On>(before));  // before the process is reaped, which would give back what it had
    process.join();
    CHECK(process.exitcode() == (*where ? -SIGKILL : 0));
    CHECK(nothing_left<On>());
  }
}

DEVICE_TEST_CASE("a forwarder's death before or after sending: the message is whole, or the memory comes back") {
  using On = TestType;
  if (skipped<On>()) return;
  for (const char* where : {"", "device.export.in_message"}) {
    INFO("killed at " << where);
    const std::size_t before = On::bytes_in_storages();
    Queue<at::Tensor> to_forwarder(4), from_forwarder(4);
    Process<void> process({.name = "forwarder"}, die_forwarding<On>, std::string(where), to_forwarder, from_forwarder);
    process.start();
    to_forwarder.put(at::full({100}, 3.0f).to(on<On>().device()));
    if (*where) CHECK(exports_go<On>(before));
    process.join();
    CHECK(process.exitcode() == -SIGKILL);
    if (*where) {
      CHECK(from_forwarder.empty());
    } else {
      ipc_collect();
      CHECK(device_ipc_statistics().exports == 1);  // the message has it
      CHECK(from_forwarder.get().cpu().equal(at::full({100}, 3.0f)));
      CHECK(exports_go<On>(before));
    }
    CHECK(nothing_left<On>());
  }
}

DEVICE_TEST_CASE("a producer's death at any marked point of sending leaves no message, or one that says so") {
  using On = TestType;
  if (skipped<On>()) return;
  for (const char* where : {"device.export.made", "device.export.in_message"}) {
    INFO("killed at " << where);
    Queue<at::Tensor> queue(4);
    Process<void> process({.name = "producer"}, produce<On>, std::string(where), queue, Event());
    process.start();
    process.join();
    CHECK(process.exitcode() == -SIGKILL);
    CHECK(queue.empty());
  }
  {
    Queue<at::Tensor> queue(4);
    Process<void> process({.name = "producer"}, produce<On>, std::string(), queue, Event());
    process.start();
    CHECK(eventually([&] { return queue.qsize() == 1; }));
    process.kill();
    process.join();
    CHECK_THROWS_AS(queue.get(), PeerDied);
    CHECK(queue.empty());
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a producer that dies while it gives back leaves nothing behind") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(4);
    Event done;
    Process<void> process({.name = "producer"}, produce<On>, std::string("device.collect.before_drop"), queue, done);
    process.start();
    CHECK(queue.get().cpu().equal(at::full({100}, 4.0f)));
    done.set();
    ipc_collect();
    process.join();
    CHECK(process.exitcode() == -SIGKILL);
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a producer's death is an error by name at the next use, and letting go is none") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(4);
    Process<void> process({.name = "producer"}, produce<On>, std::string(), queue, Event());
    process.start();
    at::Tensor received = queue.get();
    CHECK(received.cpu().equal(at::full({100}, 4.0f)));
    CHECK_NOTHROW(check_owner_alive(received));
    const std::string pid = std::to_string(process.pid());
    ::kill(process.pid(), SIGKILL);
    process.join();
    CHECK_THROWS_AS(check_owner_alive(received), PeerDied);
    CHECK_THROWS_WITH(check_owner_alive(received), ContainsSubstring("cpu()"));
    CHECK_THROWS_AS(queue.put(received), PeerDied);
    CHECK(queue.empty());
    CHECK_NOTHROW(check_owner_alive(at::ones({2})));
    CHECK_NOTHROW(check_owner_alive(at::Tensor()));
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a process that waits until its tensors are released may end") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(4);
    Event done;
    Process<void> process({.name = "producer"}, produce<On>, std::string(), queue, done);
    process.start();
    at::Tensor received = queue.get();
    done.set();
    CHECK(received.cpu().equal(at::full({100}, 4.0f)));
    CHECK_FALSE(process.join(std::chrono::milliseconds(200)));  // it is still waiting
    received = at::Tensor();
    process.result();
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("an opening that nobody uses stays for some seconds, and is closed at once by ipc_collect") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(4);
    Event done;
    Process<void> process({.name = "producer"}, produce<On>, std::string(), queue, done);
    process.start();
    at::Tensor received = queue.get();
    queue.put(received);
    (void)received.cpu();
    CHECK(device_ipc_statistics().open_bases == 1);
    const auto idle_by = Imports::Clock::now();
    received = at::Tensor();
    Imports& imports = DeviceIpc::current().imports();
    CHECK(eventually([&] {
      imports.collect(Imports::Clock::now());
      return device_ipc_statistics().imports == 0;
    }));
    const std::size_t openings = device_ipc_statistics().openings;
    if (idle_by + Imports::kIdle > Imports::Clock::now()) CHECK(device_ipc_statistics().open_bases == 1);
    received = queue.get();
    queue.put(received);
    (void)received.cpu();
    if (idle_by + Imports::kIdle > Imports::Clock::now()) CHECK(device_ipc_statistics().openings == openings);
    received = at::Tensor();
    CHECK(eventually([&] {
      imports.collect(Imports::Clock::now());
      return device_ipc_statistics().imports == 0;
    }));
    imports.collect(Imports::Clock::now() + Imports::kIdle);
    CHECK(device_ipc_statistics().open_bases == 0);
    received = queue.get();
    (void)received.cpu();
    received = at::Tensor();
    CHECK(eventually([] {
      ipc_collect();
      return device_ipc_statistics().imports == 0 && device_ipc_statistics().open_bases == 0;
    }));
    done.set();
    process.result();
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("an opening that nobody uses is closed as soon as its producer wants the memory back, or is dead") {
  using On = TestType;
  if (skipped<On>()) return;
  for (const std::string what : {"asks", "its allocator asks", "dies"}) {
    CAPTURE(what);
    Queue<at::Tensor> queue(4);
    Event collect, collected;
    Process<void> process(
        {.name = "producer"},
        +[](Queue<at::Tensor> out, Event collect, Event collected, bool is_allocator) {
          const at::Tensor tensor = at::full({100}, 4.0f).to(on<On>().device());
          out.put(tensor);
          collect.wait();
          if (is_allocator)
            (void)DeviceIpc::give_back_for_allocator();
          else
            ipc_collect();
          collected.set();
          Event().wait();
        },
        queue, collect, collected, what == "its allocator asks");
    process.start();
    (void)queue.get().cpu();
    Imports& imports = DeviceIpc::current().imports();
    CHECK(eventually([&] {
      imports.collect(Imports::Clock::now());
      return device_ipc_statistics().imports == 0;
    }));
    if (what == "dies") {
      ::kill(process.pid(), SIGKILL);
      process.join();
    } else {
      collect.set();
      collected.wait();
    }
    imports.collect(Imports::Clock::now());
    CHECK(device_ipc_statistics().open_bases == 0);
    process.kill();
    process.join();
    CHECK(nothing_left<On>());
  }
}

DEVICE_TEST_CASE("a storage that is sent again is not wanted back any more: its opening stays") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(4);
    Event collect, done;
    Process<void> process(
        {.name = "producer"},
        +[](Queue<at::Tensor> out, Event collect, Event done) {
          {
            const at::Tensor tensor = at::full({100}, 4.0f).to(on<On>().device());
            out.put(tensor);
            collect.wait();
            ipc_collect();
            out.put(tensor);
          }
          done.wait();
          wait_until_released(std::chrono::seconds(10));
        },
        queue, collect, done);
    process.start();
    at::Tensor first = queue.get();
    collect.set();
    at::Tensor second = queue.get();
    (void)second.cpu();
    first.reset();
    const auto idle_by = Imports::Clock::now();
    second.reset();
    Imports& imports = DeviceIpc::current().imports();
    CHECK(eventually([&] {
      imports.collect(Imports::Clock::now());
      return device_ipc_statistics().imports == 0;
    }));
    imports.collect(Imports::Clock::now());
    if (idle_by + Imports::kIdle > Imports::Clock::now()) CHECK(device_ipc_statistics().open_bases == 1);
    done.set();
    process.result();
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a forked child has none of its parent's exports and imports") {
  using On = OnHostDouble;
  {
    Queue<at::Tensor> queue(4);
    Process<int> process(
        {.name = "forker"},
        +[](Queue<at::Tensor> in) {
          const at::Tensor received = in.get();
          Queue<at::Tensor> out(1);
          out.put(at::ones({4}).to(on<On>().device()));
          const auto is_there = [](std::size_t count) {
            const DeviceIpcStatistics now = device_ipc_statistics();
            return now.exports == count && now.imports == count && now.open_bases == count && now.word_pages >= count;
          };
          if (!is_there(1)) return -1;
          const pid_t child = ::fork();
          if (child == 0) ::_exit(is_there(0) && device_ipc_statistics().word_pages == 0 ? 0 : 1);
          int status = -1;
          (void)::waitpid(child, &status, 0);
          return is_there(1) && received.cpu().equal(at::full({100}, 3.0f)) ? status : -2;
        },
        queue);
    process.start();
    queue.put(at::full({100}, 3.0f).to(on<On>().device()));
    CHECK(process.result() == 0);
  }
  CHECK(nothing_left<On>());
}

// On the double: CUDA's driver holds a lock of its own while it waits there, which copies of other threads need, too.
TEST_CASE("device ipc: while one thread closes an opening, which waits for the device, others receive") {
  using On = OnHostDouble;
  {
    On::load_kernels();
    Queue<at::Tensor> queue(4), other_queue(4);
    Event done;
    Process<void> one({.name = "one"}, produce<On>, std::string(), queue, done);
    Process<void> two({.name = "two"}, produce<On>, std::string(), other_queue, done);
    one.start();
    two.start();
    at::Tensor received = queue.get();
    queue.put(received);
    (void)received.cpu();
    received = at::Tensor();
    Imports& imports = DeviceIpc::current().imports();
    CHECK(eventually([&] {
      imports.collect(Imports::Clock::now());
      return device_ipc_statistics().imports == 0;
    }));
    CHECK(eventually([&] { return other_queue.qsize() == 1; }));
    {
      const OnStream here(new_stream<On>());
      auto gate = On::close_gate();
      std::thread closer([&] { imports.collect(Imports::Clock::now() + Imports::kIdle); });
      CHECK(eventually([] { return host_double::waiting_for_device() == 1; }));
      std::thread again;
      {
        const OnStream another(new_stream<On>());
        CHECK(other_queue.get().cpu().equal(at::full({100}, 4.0f)));
        CHECK(device_ipc_statistics().open_bases == 2);  // one of them is being closed
        // Whoever needs that one waits, and opens it anew.
        again = std::thread([&] {
          const OnStream there(new_stream<On>());
          received = queue.get();
        });
      }
      CHECK(eventually([&] { return queue.empty(); }));
      gate.reset();
      closer.join();
      again.join();
    }
    CHECK(received.cpu().equal(at::full({100}, 4.0f)));
    received = at::Tensor();
    ipc_collect();
    done.set();
    one.result();
    two.result();
  }
  CHECK(nothing_left<On>());
}

/// Whether `left` imports are left, and the openings that are too many closed.
bool collected_to(std::size_t left) {
  const auto collect = [] { DeviceIpc::current().imports().collect(Imports::Clock::now()); };
  if (device_ipc_statistics().imports > left) return collect(), false;
  collect();  // waits for another thread that has counted them down, and closes openings still
  return true;
}

TEST_CASE("device ipc: openings that nobody uses are bounded, the ones used longest ago go first") {
  using On = OnHostDouble;
  {
    constexpr int kTensors = int(Imports::kMostIdle) + 6;
    Queue<at::Tensor> queue(kTensors);
    Event done;
    Process<void> process(
        {.name = "producer"},
        +[](Queue<at::Tensor> out, Event done) {
          for (int i = 0; i < kTensors; ++i) out.put(at::empty({2 << 20}, on<On>().dtype(at::kByte)));
          done.wait();
          wait_until_released(std::chrono::seconds(10));
        },
        queue, done);
    process.start();
    std::vector<at::Tensor> received;
    Queue<at::Tensor> first(1), last(1);
    for (int i = 0; i < kTensors; ++i) received.push_back(queue.get());
    CHECK(device_ipc_statistics().open_bases == kTensors);
    first.put(received.front());
    last.put(received.back());
    // One after another: letting go takes effect when the stream has passed it, which may be in another order.
    const auto let_go = [&](auto begin, auto end) {
      const std::size_t left = device_ipc_statistics().imports - std::size_t(end - begin);
      std::fill(begin, end, at::Tensor());
      return eventually([&] { return collected_to(left); });
    };
    CHECK(let_go(received.begin(), received.begin() + 1));
    CHECK(let_go(received.begin() + 1, received.end() - 1));
    const auto idle_by = Imports::Clock::now();
    CHECK(let_go(received.end() - 1, received.end()));
    CHECK(device_ipc_statistics().open_bases <= Imports::kMostIdle);
    const std::size_t openings = device_ipc_statistics().openings;
    at::Tensor used_last = last.get();
    if (idle_by + Imports::kIdle > Imports::Clock::now()) CHECK(device_ipc_statistics().openings == openings);
    const std::size_t openings_then = device_ipc_statistics().openings;
    at::Tensor used_first = first.get();
    CHECK(device_ipc_statistics().openings == openings_then + 1);
    used_first = used_last = at::Tensor();
    ipc_collect();
    done.set();
    process.result();
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: openings that nobody uses are bounded by the bytes of others that are kept for them, too") {
  using On = OnHostDouble;
  {
    constexpr std::int64_t kBytes = 64 << 20;
    constexpr int kMost = int(Imports::kMostIdleBytes / kBytes), kTensors = kMost + 2;
    Queue<at::Tensor> queue(kTensors);
    Process<void> process(
        {.name = "producer"},
        +[](Queue<at::Tensor> out) {
          for (int i = 0; i < kTensors; ++i) out.put(at::empty({kBytes}, on<On>().dtype(at::kByte)));
          ::pause();
        },
        queue);
    process.start();
    std::vector<at::Tensor> received;
    for (int i = 0; i < kTensors; ++i) received.push_back(queue.get());
    CHECK(device_ipc_statistics().open_bases == kTensors);
    received.clear();
    const auto idle_by = Imports::Clock::now();
    CHECK(eventually([] { return collected_to(0); }));
    CHECK(device_ipc_statistics().open_bases <= kMost);
    if (idle_by + Imports::kIdle > Imports::Clock::now()) CHECK(device_ipc_statistics().open_bases == kMost);
    process.kill();
    process.join();
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("an allocation is closed before the last hold on what lies in it goes") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const std::size_t before = On::bytes_in_storages();
    Queue<at::Tensor> queue(4);
    Event let_go, done;
    Process<void> process(
        {.name = "receiver"},
        +[](Queue<at::Tensor> in, Event let_go, Event done) {
          (void)in.get().cpu();
          let_go.set();
          done.wait();  // nobody asks for the memory: the collector gives it back
        },
        queue, let_go, done);
    process.start();
    queue.put(at::full({1000}, 3.0f).to(on<On>().device()));
    let_go.wait();
    CHECK(exports_go<On>(before));
    On::empty_cache();  // frees the allocation: the double aborts where it is open
    done.set();
    process.result();
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("storm: receivers killed at random times leave no memory, and the producer goes on") {
  using On = TestType;
  if (skipped<On>()) return;
  const std::size_t before = On::bytes_in_storages();
  for (int round = 0; round < 5 * test_scale(); ++round) {
    Queue<at::Tensor> queue(16);
    auto receive = +[](Queue<at::Tensor> in) {
      std::vector<at::Tensor> kept;
      for (;;) {
        kept.push_back(in.get());
        if (kept.size() > 4) kept.erase(kept.begin());
      }
    };
    Process<void> one({.name = "one"}, receive, queue), two({.name = "two"}, receive, queue);
    one.start();
    two.start();
    for (int i = 0; i < 50 + 13 * round; ++i) {
      queue.put(at::full({100}, float(i)).to(on<On>().device()));
      if (i == 20 + 7 * round) one.kill();
    }
    two.kill();
    one.join();
    two.join();
    while (queue.try_get()) {
    }
    CHECK(exports_go<On>(before));
    CHECK(nothing_left<On>());
  }
}
