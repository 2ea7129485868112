// Copies of tensors to a device on a stream of their own, on the host double.
#include <shoal/internal/workers/copies/device_copies.h>

#include <ATen/ATen.h>
#include <shoal/internal/tensors/cuda/pinned.h>
#include <shoal/ipc/heap.h>
#include <shoal/tensors/share.h>

#include <array>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;
using shoal::detail::DeviceCopies;

namespace {

const c10::Device kDevice(host_double::kType, 0);

/// Stops the stream on which copies are made.
std::unique_ptr<host_double::Gate> gate_of(const DeviceCopies& copies) {
  const OnStream on(copies.stream());
  return std::make_unique<host_double::Gate>(0);
}

at::Tensor pinned(std::int64_t count, double value) {
  at::Tensor tensor = empty_shared({count});
  pin_memory_(tensor, host_double::kType);
  return tensor.fill_(value);
}

at::Tensor on_device(std::int64_t count) { return at::empty({count}, on<OnHostDouble>()); }

c10::Stream current_stream() { return c10::impl::VirtualGuardImpl(host_double::kType).getStream(kDevice); }

/// Starts and delivers the copy of one tensor.
at::Tensor copied(DeviceCopies& copies, at::Tensor tensor) {
  const std::array<at::Tensor*, 1> tensors = {&tensor};
  copies.deliver(*copies.start(tensors), tensors);
  return tensor;
}

}  // namespace

TEST_CASE("device copies: what a running copy reads is held until it is done, and given up then") {
  {
    DeviceCopies copies(kDevice, 4);
    auto gate = gate_of(copies);
    at::Tensor source = pinned(1000, 7);
    const auto held = [before = heap_bytes_in_use()] { return heap_bytes_in_use() == before; };
    const at::Tensor copy = copied(copies, std::exchange(source, {}));
    ipc_collect();
    CHECK(copies.unfinished() == 1);
    CHECK(held());
    // Nobody else gets the memory either: what is born now lies elsewhere.
    const at::Tensor other = empty_shared({1000}).fill_(8);
    copies.collect();
    CHECK(copies.unfinished() == 1);
    gate->open();
    CHECK(copy.cpu().equal(at::full({1000}, 7.0)));
    copies.collect();
    CHECK(copies.unfinished() == 0);
    CHECK(eventually([&] {
      ipc_collect();
      return device_ipc_statistics().pinned_blocks == 0;
    }));
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device copies: the current stream waits for a delivered tensor, the thread does not") {
  {
    DeviceCopies copies(kDevice, 4);
    auto gate = gate_of(copies);
    const at::Tensor copy = copied(copies, at::full({8}, 3.0));
    at::Tensor result = on_device(8);
    result.copy_(copy, /*non_blocking=*/true);
    host_double::settle(current_stream());
    CHECK_FALSE(current_stream().query());  // it stands before the copy that has not come
    gate->open();
    CHECK(result.cpu().equal(at::full({8}, 3.0)));
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device copies: the stream that is current at delivery is the one that waits") {
  {
    DeviceCopies copies(kDevice, 4);
    auto gate = gate_of(copies);
    const c10::Stream before = current_stream(), other = new_stream<OnHostDouble>();
    at::Tensor tensor = at::full({8}, 3.0);
    const std::array<at::Tensor*, 1> tensors = {&tensor};
    const auto flight = copies.start(tensors);
    CHECK(current_stream() == before);
    {
      const OnStream on(other);
      copies.deliver(*flight, tensors);
    }
    host_double::settle(other);
    CHECK_FALSE(other.query());
    CHECK(before.query());
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device copies: a delivered tensor's memory is nobody else's until the stream that uses it is done") {
  {
    DeviceCopies copies(kDevice, 4);
    const at::Tensor result = on_device(1000);
    host_double::Gate gate(0);  // of the current stream: work that uses the copy comes late
    {
      const at::Tensor copy = copied(copies, at::full({1000}, 5.0));
      result.copy_(copy, /*non_blocking=*/true);
    }
    copies.stream().synchronize();  // the allocator's own order: the memory would be overwritten by now
    gate.open();
    CHECK(result.cpu().equal(at::full({1000}, 5.0)));
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device copies: no more than the given number are under way, one more waits for the oldest") {
  {
    DeviceCopies copies(kDevice, 2);
    auto gate = gate_of(copies);
    std::vector<at::Tensor> made;
    for (int i = 0; i < 2; ++i) made.push_back(copied(copies, pinned(100, i)));
    CHECK(copies.unfinished() == 2);
    std::thread opens([&] { gate->open(); });
    made.push_back(copied(copies, pinned(100, 2)));
    opens.join();
    CHECK(copies.unfinished() <= 2);
    for (int i = 0; i < 3; ++i) CHECK(made[std::size_t(i)].cpu().equal(at::full({100}, double(i))));
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE(
    "device copies: what lies on the device already is delivered as it is, and what is on another one is copied") {
  {
    DeviceCopies copies(kDevice, 2);
    at::Tensor here = on_device(4).fill_(1), there = at::empty({4}, on<OnHostDouble>(1)).fill_(2);
    const void* where = here.const_data_ptr();
    const std::array<at::Tensor*, 2> tensors = {&here, &there};
    copies.deliver(*copies.start(tensors), tensors);
    CHECK(here.const_data_ptr() == where);
    CHECK(there.device() == kDevice);
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device copies: where one fails, none of its batch is under way") {
  {
    DeviceCopies copies(kDevice, 2);
    host_double::use_expandable_segments(true);
    at::Tensor fits = pinned(1000, 1), does_not = at::empty({300 << 20}, at::kByte);
    const std::array<at::Tensor*, 2> tensors = {&fits, &does_not};
    CHECK_THROWS_WITH(copies.start(tensors), ContainsSubstring("segment is full"));
    host_double::use_expandable_segments(false);
    CHECK(copies.unfinished() == 0);
    CHECK(copies.stream().query());
    CHECK(current_stream().id() == 0);
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device copies: their time is the device's, and taken only when asked for") {
  {
    DeviceCopies copies(kDevice, 2);
    (void)copied(copies, at::zeros({1000}));
    copies.finish();
    CHECK(copies.nanoseconds() == 0);
    copies.measure(true);
    (void)copied(copies, at::zeros({1 << 20}));
    copies.finish();
    CHECK(copies.nanoseconds() > 0);
    copies.measure(false);
    CHECK(copies.nanoseconds() == 0);
  }
  CHECK(nothing_left<OnHostDouble>());
}
