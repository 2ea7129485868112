// Shared memory that is pinned in place.
#include <shoal/internal/tensors/cuda/pinned.h>

#include <ATen/ATen.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/heap/pinned_extents.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>
#include <shoal/tensors/read_only.h>
#include <shoal/tensors/share.h>
#include <signal.h>

#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace {

constexpr std::size_t kExtent = 2u << 20;
using Clock = PinnedRanges::Clock;

/// What the collector does ten times a second, at a time of the test's own.
void look(Clock::time_point now) {
  HolderCheck holders;
  DeviceIpc::current().pinned().collect(holders, now);
}

}  // namespace

DEVICE_TEST_CASE("a batch is shared and pinned with one write, and a copy to the device reads it where it lies") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    at::Tensor batch = empty_shared({64, 1024});
    pin_memory_(batch, On::kType);
    CHECK(is_shared_pinned(batch));
    CHECK(is_shared_pinned(batch.slice(0, 3, 4)));
    batch.fill_(3);
    const at::Tensor copy = batch.to(on<On>().device(), /*non_blocking=*/true);
    CHECK(copy.cpu().equal(batch));
    if (!On::kIsDouble) CHECK(batch.is_pinned());
    CHECK(device_ipc_statistics().pinned_blocks == 1);
    CHECK(unpin_memory_(batch));
    CHECK_FALSE(unpin_memory_(batch));
    CHECK_FALSE(is_shared_pinned(batch));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: an extent is registered once, however many pinned blocks lie in it, and as long as one does") {
  {
    const int before = host_double::counts().registrations;
    std::vector<at::Tensor> small;
    for (int i = 0; i < 10; ++i) small.push_back(empty_shared({100}));
    for (int times = 0; times < 3; ++times)
      for (at::Tensor& each : small) pin_memory_(each, host_double::kType);
    const auto counts = host_double::counts();
    CHECK(device_ipc_statistics().pinned_blocks == 10);
    CHECK(counts.registrations - before <= 2);  // of one class: one extent, or the end of one and the next
    CHECK(counts.registered_bytes == std::size_t(counts.registrations - before) * kExtent);
    CHECK(device_ipc_statistics().pinned_bytes == counts.registered_bytes);
    for (std::size_t i = 1; i < small.size(); ++i) CHECK(unpin_memory_(small[i]));
    CHECK(host_double::counts().registered_bytes == kExtent);
    CHECK(unpin_memory_(small[0]));
    CHECK(host_double::counts().registered_bytes == 0);
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device ipc: a large block is registered whole, in one piece") {
  {
    const int before = host_double::counts().registrations;
    at::Tensor large = empty_shared({5 << 20}, at::kByte);
    pin_memory_(large, host_double::kType);
    CHECK(host_double::counts().registrations == before + 1);
    CHECK(host_double::counts().registered_bytes == 3 * kExtent);
    (void)unpin_memory_(large);
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device ipc: a pinned block that is freed comes back pinned, registered once however often it goes round") {
  const std::size_t bytes = GENERATE(500'000ul, 5ul << 20);
  {
    const int before = host_double::counts().registrations;
    for (int i = 0; i < 100; ++i) {
      at::Tensor tensor = empty_shared({std::int64_t(bytes)}, at::kByte);
      pin_memory_(tensor, host_double::kType);
      CHECK(is_shared_pinned(tensor));
      if (i % 10 == 0) look(Clock::now());  // as the collector does, at any time
    }
    CHECK(host_double::counts().registrations == before + 1);
    CHECK(heap_bytes_in_use() == 0);  // nobody holds it in between
  }
  CHECK(nothing_left<OnHostDouble>());
  CHECK(host_double::counts().registered_bytes == 0);
}

TEST_CASE("device ipc: pinned memory that nobody has any more stays registered for a while, then goes back") {
  ExtentRange extents;
  {
    at::Tensor tensor = empty_shared({3 << 20}, at::kByte);
    extents = extents_of(shared_hold(tensor)->block());
    pin_memory_(tensor, host_double::kType);
  }
  const auto freed_at = Clock::now();
  look(freed_at);
  CHECK(device_ipc_statistics().pinned_blocks == 0);
  CHECK(device_ipc_statistics().pinned_bytes == 2 * kExtent);
  CHECK(heap_statistics().idle_pinned_bytes == 2 * kExtent);
  Session::current().heap().trim();
  CHECK(heap_statistics().idle_bytes == 2 * kExtent);
  // Used again in between: the time counts anew.
  pin_memory_(empty_shared({3 << 20}, at::kByte), host_double::kType);
  look(freed_at + PinnedRanges::kRest);
  CHECK(host_double::counts().registered_bytes == 2 * kExtent);
  look(Clock::now() + PinnedRanges::kRest);
  CHECK(host_double::counts().registered_bytes == 0);
  CHECK(heap_statistics().idle_pinned_bytes == 0);
  Session::current().heap().trim();
  CHECK(heap_statistics().idle_bytes == 0);
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device ipc: ipc_collect unregisters at once what nobody has any more") {
  pin_memory_(empty_shared({3 << 20}, at::kByte), host_double::kType);
  CHECK(host_double::counts().registered_bytes == 2 * kExtent);
  ipc_collect();
  CHECK(host_double::counts().registered_bytes == 0);
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device ipc: extents that have been cut otherwise meanwhile are registered anew, as the blocks lie now") {
  Session::current().heap().trim();
  {
    ExtentRange whole;
    {
      at::Tensor large = empty_shared({10 << 20}, at::kByte);
      whole = extents_of(shared_hold(large)->block());
      pin_memory_(large, host_double::kType);
    }
    at::Tensor first = empty_shared({3 << 20}, at::kByte), second = empty_shared({3 << 20}, at::kByte);
    REQUIRE(extents_of(shared_hold(first)->block()) == ExtentRange{whole.first, 2});
    REQUIRE(extents_of(shared_hold(second)->block()) == ExtentRange{whole.first + 2, 2});
    // Its header is where the large one's was: it is another block all the same.
    CHECK_FALSE(is_shared_pinned(first));
    CHECK_FALSE(unpin_memory_(first));
    const int before = host_double::counts().registrations;
    pin_memory_(second, host_double::kType);
    CHECK(host_double::counts().registered_bytes == 2 * kExtent);
    const Extents& extents = Session::current().heap().extents();
    CHECK_FALSE(extents.is_pinned(whole.first));
    CHECK(extents.is_pinned(whole.first + 2));
    CHECK_FALSE(extents.is_pinned(whole.first + 4));
    pin_memory_(first, host_double::kType);
    CHECK(host_double::counts().registrations == before + 2);
    // And joined again.
    first = second = at::Tensor();
    at::Tensor large = empty_shared({10 << 20}, at::kByte);
    REQUIRE(extents_of(shared_hold(large)->block()) == whole);
    pin_memory_(large, host_double::kType);
    CHECK(host_double::counts().registrations == before + 3);
    CHECK(host_double::counts().registered_bytes == 5 * kExtent);
    CHECK(is_shared_pinned(large));
  }
  CHECK(nothing_left<OnHostDouble>());
  CHECK(host_double::counts().registered_bytes == 0);
}

TEST_CASE("device ipc: what was pinned for blocks of another cut is not kept because of a block at the same place") {
  Session::current().heap().trim();
  {
    {
      pin_memory_(empty_shared({10 << 20}, at::kByte), host_double::kType);
    }
    const at::Tensor small = empty_shared({3 << 20}, at::kByte);  // at the beginning of the large one
    look(Clock::time_point::max());
    CHECK(host_double::counts().registered_bytes == 0);
    CHECK(heap_statistics().idle_pinned_bytes == 0);
  }
  CHECK(nothing_left<OnHostDouble>());
}

DEVICE_TEST_CASE("a block where two smaller ones were pinned is copied as any other") {
  using On = TestType;
  if (skipped<On>()) return;
  Session::current().heap().trim();
  {
    ExtentRange first_extents;
    {
      at::Tensor first = empty_shared({3 << 20}, at::kByte), second = empty_shared({3 << 20}, at::kByte);
      first_extents = extents_of(shared_hold(first)->block());
      REQUIRE(extents_of(shared_hold(second)->block()).first == first_extents.end());
      pin_memory_(first, On::kType);
      pin_memory_(second, On::kType);
    }
    const at::Tensor large = empty_shared({7 << 20}, at::kByte).fill_(5);
    REQUIRE(extents_of(shared_hold(large)->block()).first == first_extents.first);
    const at::Tensor copy = large.to(on<On>().device());
    CHECK(copy.cpu().equal(large));
    CHECK(device_ipc_statistics().pinned_bytes == 0);
  }
  {
    pin_memory_(empty_shared({7 << 20}, at::kByte), On::kType);
    const at::Tensor small = empty_shared({3 << 20}, at::kByte).fill_(6), next = empty_shared({5 << 20}, at::kByte);
    CHECK(small.to(on<On>().device()).cpu().equal(small));
    CHECK(next.fill_(7).to(on<On>().device()).cpu().equal(next));
  }
  CHECK(nothing_left<On>());
}

// On the double: CUDA's driver holds a lock of its own while it waits there, which registering needs, too.
TEST_CASE("device ipc: while one thread unregisters memory, which waits for the device, others pin and ask") {
  using On = OnHostDouble;
  {
    On::load_kernels();
    at::Tensor one = empty_shared({3 << 20}, at::kByte), two = empty_shared({3 << 20}, at::kByte);
    pin_memory_(one, On::kType);
    auto gate = On::close_gate();
    std::thread other([&] { CHECK(unpin_memory_(one)); });
    CHECK(eventually([&] { return !is_shared_pinned(one); }));
    pin_memory_(two, On::kType);
    CHECK(is_shared_pinned(two));
    gate.reset();
    other.join();
    CHECK(unpin_memory_(two));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: pinning makes no context on a device that the process does not use") {
  Process<std::vector<int>> process(
      {.name = "pinner"}, +[] {
        const at::Tensor used = at::ones({10}).to(on<OnHostDouble>(1).device());
        const at::Tensor pinned = pin_memory_(empty_shared({10}), host_double::kType);
        return host_double::contexts();
      });
  process.start();
  CHECK(process.result() == std::vector<int>{1});
}

TEST_CASE("device ipc: where the driver refuses, nothing is pinned and nothing is kept") {
  {
    at::Tensor tensor = empty_shared({3 << 20}, at::kByte);
    const auto bytes = bytes_of(extents_of(shared_hold(tensor)->block()));
    DeviceMemory& memory = device_memory(host_double::kType);
    memory.register_host(bytes.data(), bytes.size(), 0);  // by somebody who did not ask shoal
    CHECK_THROWS_AS(pin_memory_(tensor, host_double::kType), DeviceError);
    CHECK_FALSE(is_shared_pinned(tensor));
    CHECK(device_ipc_statistics().pinned_bytes == 0);
    memory.unregister_host(bytes.data(), 0);
    pin_memory_(tensor, host_double::kType);
    CHECK(is_shared_pinned(tensor));
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE(
    "device ipc: of two processes that pin the same block the second one holds it for as long as it is registered") {
  {
    Queue<at::Tensor> tensors(1);
    Queue<std::size_t> registered(1);
    Event dropped;
    Process<void> process(
        {.name = "second"},
        +[](Queue<at::Tensor> tensors, Queue<std::size_t> registered, Event dropped) {
          at::Tensor tensor = tensors.get();
          pin_memory_(tensor, host_double::kType);
          pin_memory_(tensor, host_double::kType);
          registered.put(host_double::counts().registered_bytes);
          dropped.wait();
          const std::size_t in_use = heap_bytes_in_use();
          tensor = at::Tensor();
          ipc_collect();
          registered.put(host_double::counts().registered_bytes);
          registered.put(in_use - heap_bytes_in_use());
          // First now, where the other one has given up the mark.
          tensor = tensors.get();
          pin_memory_(tensor, host_double::kType);
          tensor = at::Tensor();
          look(Clock::now());
          registered.put(host_double::counts().registered_bytes);
          dropped.wait();
        },
        tensors, registered, dropped);
    process.start();
    {
      at::Tensor tensor = empty_shared({3 << 20}, at::kByte);
      pin_memory_(tensor, host_double::kType);
      tensors.put(tensor);
      CHECK(registered.get() == 2 * kExtent);
    }
    ipc_collect();  // the other one's tensor is still there
    CHECK(host_double::counts().registered_bytes == 2 * kExtent);
    dropped.set();
    CHECK(registered.get() == 0);
    CHECK(registered.get() >= 3u << 20);
    CHECK(eventually([] {
      ipc_collect();
      return host_double::counts().registered_bytes == 0;
    }));
    dropped.clear();
    tensors.put(empty_shared({3 << 20}, at::kByte));
    CHECK(registered.get() == 2 * kExtent);
    CHECK(heap_statistics().idle_pinned_bytes == 2 * kExtent);
    ::kill(process.pid(), SIGKILL);
    process.join();
    // Whoever wants to pin it finds that its marker is dead.
    at::Tensor again = empty_shared({3 << 20}, at::kByte);
    pin_memory_(again, host_double::kType);
    CHECK(Session::current().heap().extents().record(extents_of(shared_hold(again)->block()).first).pinned_by.load() ==
          Session::current().self().word());
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device ipc: a block that another process still has stays pinned here, until that one is killed") {
  {
    Queue<at::Tensor> queue(4);
    Event holding;
    Process<void> process(
        {.name = "holder"},
        +[](Queue<at::Tensor> in, Event holding) {
          at::Tensor received = in.get();
          holding.set();
          Event().wait();
        },
        queue, holding);
    process.start();
    {
      at::Tensor tensor = empty_shared({3 << 20}, at::kByte);
      pin_memory_(tensor, host_double::kType);
      queue.put(tensor);
    }
    holding.wait();
    ipc_collect();
    ipc_collect();
    CHECK(host_double::counts().registered_bytes == 2 * kExtent);
    ::kill(process.pid(), SIGKILL);
    CHECK(eventually([] {
      ipc_collect();
      return host_double::counts().registered_bytes == 0;
    }));
    process.join();
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device ipc: what is not in the shared heap is not pinned in place, and says what to do") {
  at::Tensor own = at::ones({4}), undefined;
  CHECK_THROWS_WITH(pin_memory_(own, host_double::kType), ContainsSubstring("share_memory_"));
  CHECK_THROWS_WITH(pin_memory_(undefined, host_double::kType), ContainsSubstring("undefined"));
  CHECK_FALSE(unpin_memory_(own));
  CHECK_FALSE(is_shared_pinned(undefined));
  at::Tensor shared = empty_shared({4});
  CHECK_THROWS_AS(pin_memory_(shared, c10::kXPU), DeviceError);  // no such device here
  CHECK_FALSE(is_shared_pinned(shared));
  // A process that writes it pins other addresses than those at which it is read.
  at::Tensor published = at::ones({4});
  read_only(published);
  CHECK_FALSE(can_pin_memory(published));
  CHECK_THROWS_WITH(pin_memory_(published, host_double::kType), ContainsSubstring("read-only"));
  at::Tensor sparse = at::eye(3).to_sparse();
  share_memory_(sparse);
  CHECK_FALSE(can_pin_memory(sparse));
  CHECK_THROWS_WITH(pin_memory_(sparse, host_double::kType), !ContainsSubstring("share_memory_"));
  CHECK(can_pin_memory(shared));
  CHECK(device_ipc_statistics().pinned_blocks == 0);
}
