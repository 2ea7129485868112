// Shared memory that is pinned in place.
#include <ATen/ATen.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/heap/statistics.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/cuda/device_memory.h>
#include <shoal/tensors/cuda/ipc_collect.h>
#include <shoal/tensors/cuda/pinned.h>
#include <shoal/tensors/share.h>

#include <signal.h>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace {

constexpr std::size_t kExtent = 2u << 20;

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

TEST_CASE("device ipc: pinned memory that nobody has any more is unregistered first, and then given back") {
  const void* where;
  {
    at::Tensor tensor = empty_shared({3 << 20}, at::kByte);
    where = tensor.data_ptr();
    pin_memory_(tensor, host_double::kType);
  }
  // Until then it is held: nobody else gets the block.
  if (host_double::counts().registered_bytes != 0) CHECK(empty_shared({3 << 20}, at::kByte).data_ptr() != where);
  CHECK(eventually([] { return host_double::counts().registered_bytes == 0; }));
  CHECK(eventually([] { return heap_bytes_in_use() == 0; }));
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
    CHECK(eventually([] { return host_double::counts().registered_bytes == 0; }));
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
  CHECK(device_ipc_statistics().pinned_blocks == 0);
}
