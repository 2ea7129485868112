// Copies of tensors to a device on a stream of their own, on the host double and, where there is one, on a GPU.
#include <shoal/internal/workers/copies/device_copies.h>

#include <ATen/ATen.h>
#include <shoal/internal/tensors/cuda/pinned.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/share.h>

#include <array>
#include <atomic>
#include <chrono>
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

/// Stops the stream on which copies are made.
template <class On>
std::shared_ptr<void> gate_of(const DeviceCopies& copies) {
  const OnStream stream(copies.stream());
  return On::close_gate();
}

template <class On>
at::Tensor pinned(std::int64_t count, double value) {
  at::Tensor tensor = empty_shared({count});
  pin_memory_(tensor, On::kType);
  return tensor.fill_(value);
}

template <class On>
at::Tensor on_device(std::int64_t count) {
  return at::empty({count}, on<On>());
}

template <class On>
c10::Stream current_stream() {
  return c10::impl::VirtualGuardImpl(On::kType).getStream(on<On>().device());
}

/// Starts and delivers the copy of one tensor.
at::Tensor copied(DeviceCopies& copies, at::Tensor tensor) {
  const std::array<at::Tensor*, 1> tensors = {&tensor};
  copies.deliver(*copies.start(tensors), tensors);
  return tensor;
}

}  // namespace

#define COPIES_TEST_CASE(name) TEMPLATE_TEST_CASE("device copies: " name, "", OnHostDouble, OnCuda)

COPIES_TEST_CASE("what a running copy reads is held until it is done, and given up then") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DeviceCopies copies(on<On>().device(), 4);
    auto gate = gate_of<On>(copies);
    at::Tensor source = pinned<On>(1000, 7);
    const auto held = [before = heap_bytes_in_use()] { return heap_bytes_in_use() == before; };
    const at::Tensor copy = copied(copies, std::exchange(source, {}));
    ipc_collect();
    CHECK(copies.unfinished() == 1);
    CHECK(held());
    // Nobody else gets the memory either: what is born now lies elsewhere.
    const at::Tensor other = empty_shared({1000}).fill_(8);
    copies.collect();
    CHECK(copies.unfinished() == 1);
    gate.reset();
    CHECK(copy.cpu().equal(at::full({1000}, 7.0)));
    copies.collect();
    CHECK(copies.unfinished() == 0);
    CHECK(eventually([&] {
      ipc_collect();
      return device_ipc_statistics().pinned_blocks == 0;
    }));
  }
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("what a finished copy has read is given up, though its batch is delivered later") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DeviceCopies copies(on<On>().device(), 4);
    at::Tensor tensor = pinned<On>(1000, 7);
    const std::vector<at::Tensor*> tensors{&tensor};
    const auto flight = copies.start(tensors);
    copies.finish();
    CHECK(eventually([&] {
      ipc_collect();
      return device_ipc_statistics().pinned_blocks == 0;
    }));
    copies.deliver(*flight, tensors);
    CHECK(tensor.cpu().equal(at::full({1000}, 7.0)));
  }
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("the current stream waits for a delivered tensor, the thread does not") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DeviceCopies copies(on<On>().device(), 4);
    auto gate = gate_of<On>(copies);
    const at::Tensor copy = copied(copies, pinned<On>(8, 3.0));
    at::Tensor result = on_device<On>(8);
    result.copy_(copy, /*non_blocking=*/true);
    On::settle(current_stream<On>());
    CHECK_FALSE(current_stream<On>().query());  // it stands before the copy that has not come
    gate.reset();
    CHECK(result.cpu().equal(at::full({8}, 3.0)));
  }
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("copies are made while the current stream stands still") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DeviceCopies copies(on<On>().device(), 4);
    auto gate = On::close_gate();
    at::Tensor tensor = pinned<On>(8, 3.0);
    const std::array<at::Tensor*, 1> tensors = {&tensor};
    const auto flight = copies.start(tensors);
    copies.finish();
    {
      const OnStream other(new_stream<On>());
      copies.deliver(*flight, tensors);
      CHECK(tensor.cpu().equal(at::full({8}, 3.0)));
    }
    gate.reset();
  }
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("the stream that is current at delivery is the one that waits") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DeviceCopies copies(on<On>().device(), 4);
    auto gate = gate_of<On>(copies);
    const c10::Stream before = current_stream<On>(), other = new_stream<On>();
    at::Tensor tensor = pinned<On>(8, 3.0);
    const std::array<at::Tensor*, 1> tensors = {&tensor};
    const auto flight = copies.start(tensors);
    CHECK(current_stream<On>() == before);
    {
      const OnStream on(other);
      copies.deliver(*flight, tensors);
    }
    On::settle(other);
    CHECK_FALSE(other.query());
    CHECK(before.query());
  }
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("a delivered tensor's memory is nobody else's until the stream that uses it is done") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DeviceCopies copies(on<On>().device(), 4);
    const at::Tensor result = on_device<On>(1000);
    auto gate = On::close_gate();  // of the current stream: work that uses the copy comes late
    {
      const at::Tensor copy = copied(copies, at::full({1000}, 5.0));
      result.copy_(copy, /*non_blocking=*/true);
    }
    copies.stream().synchronize();  // the allocator's own order: the memory would be overwritten by now
    gate.reset();
    CHECK(result.cpu().equal(at::full({1000}, 5.0)));
  }
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("no more than the given number are under way, one more waits for the oldest") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DeviceCopies copies(on<On>().device(), 2);
    auto gate = gate_of<On>(copies);
    std::vector<at::Tensor> made;
    for (int i = 0; i < 2; ++i) made.push_back(copied(copies, pinned<On>(100, i)));
    CHECK(copies.unfinished() == 2);
    std::thread opens([&] { gate.reset(); });
    made.push_back(copied(copies, pinned<On>(100, 2)));
    opens.join();
    CHECK(copies.unfinished() <= 2);
    for (int i = 0; i < 3; ++i) CHECK(made[std::size_t(i)].cpu().equal(at::full({100}, double(i))));
  }
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("what lies on the device already is delivered as it is, and what is on another one is copied") {
  using On = TestType;
  if (skipped<On>(2)) return;
  {
    DeviceCopies copies(on<On>().device(), 2);
    at::Tensor here = on_device<On>(4).fill_(1), there = at::empty({4}, on<On>(1)).fill_(2);
    const void* where = here.const_data_ptr();
    const std::array<at::Tensor*, 2> tensors = {&here, &there};
    copies.deliver(*copies.start(tensors), tensors);
    CHECK(here.const_data_ptr() == where);
    CHECK(there.device() == on<On>().device());
  }
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("what lies on a device, or is made of several parts, stays as it is until it is delivered") {
  using On = TestType;
  if (skipped<On>(2)) return;
  {
    DeviceCopies copies(on<On>().device(), 2);
    at::Tensor there = at::empty({4}, on<On>(1)).fill_(2), sparse = at::eye(3).to_sparse();
    const std::array<at::Tensor*, 2> tensors = {&there, &sparse};
    CHECK_NOTHROW(copies.start(tensors));
    CHECK(there.device() == on<On>(1).device());
    CHECK(sparse.is_cpu());
    CHECK(sparse.is_sparse());
  }
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("where one fails, none of its batch is under way") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DeviceCopies copies(on<On>().device(), 2);
    host_double::use_expandable_segments(true);
    at::Tensor fits = pinned<On>(1000, 1), does_not = at::zeros({1}, at::kByte).expand({1ll << 42});
    const std::array<at::Tensor*, 2> tensors = {&fits, &does_not};
    CHECK_THROWS_WITH(copies.start(tensors), ContainsSubstring(On::kIsDouble ? "segment is full" : "out of memory"));
    host_double::use_expandable_segments(false);
    CHECK(copies.unfinished() == 0);
    CHECK(copies.stream().query());
    CHECK(current_stream<On>().id() == 0);
  }
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("their time is the device's, and taken only when asked for") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DeviceCopies copies(on<On>().device(), 2);
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
  CHECK(nothing_left<On>());
}

TEST_CASE("device copies: a process that copies to another device makes no context on its first one") {
  using On = OnHostDouble;
  shoal::Process<std::vector<int>> process(
      {.name = "copier"}, +[] {
        (void)On::devices();
        DeviceCopies copies(on<On>(1).device(), 1);
        copies.measure(true);
        for (int i = 0; i < 3; ++i) {
          const at::Tensor there = copied(copies, pinned<On>(10, i));
          if (!there.cpu().equal(at::full({10}, double(i)))) throw shoal::Error("another tensor");
        }
        copies.collect();
        at::Tensor last = pinned<On>(10, 3);
        const std::array<at::Tensor*, 1> tensors = {&last};
        auto flight = copies.start(tensors);
        copies.finish();
        flight.reset();  // whoever has it last destroys its events
        return host_double::contexts();
      });
  process.start();
  CHECK(process.result() == std::vector<int>{1});
  CHECK(nothing_left<On>());
}

COPIES_TEST_CASE("copies are begun and given up beside another thread's capture, and do not break it") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    DeviceCopies copies(on<On>().device(), 2);
    at::Tensor first = pinned<On>(10, 1), second = pinned<On>(10, 2);
    at::Tensor there = copied(copies, first);
    CHECK(there.cpu().equal(at::ones({10})));
    const c10::Stream captured = new_stream<On>();
    std::thread([&] {
      const OnStream here(captured);
      const typename On::Capture capture(captured);
      std::thread([&] {
        there = copied(copies, second);  // asks whether the first one is done
        copies.finish();
      }).join();
      if constexpr (On::kIsDouble) CHECK_FALSE(capture.is_broken());
    }).join();
    CHECK(there.cpu().equal(at::full({10}, 2.0f)));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device copies: where one fails beside another thread's capture, that is not broken, and none is under way") {
  using On = OnHostDouble;
  {
    DeviceCopies copies(on<On>().device(), 2);
    host_double::use_expandable_segments(true);
    at::Tensor fits = pinned<On>(1000, 1), does_not = at::zeros({1}, at::kByte).expand({1ll << 42});
    std::atomic<bool> done{false};
    {
      const OnStream here(copies.stream());
      host_double::enqueue(0, [&done] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        done = true;
      });
    }
    const c10::Stream captured = new_stream<On>();
    {
      const OnStream here(captured);
      const On::Capture capture(captured);
      std::thread([&] {
        const std::array<at::Tensor*, 2> tensors = {&fits, &does_not};
        CHECK_THROWS_WITH(copies.start(tensors), ContainsSubstring("segment is full"));
        CHECK(done);  // and so is what was queued behind that
      }).join();
      CHECK_FALSE(capture.is_broken());
    }
    host_double::use_expandable_segments(false);
    CHECK(copies.unfinished() == 0);
    CHECK(copies.stream().query());
  }
  CHECK(nothing_left<On>());
}

TEST_CASE(
    "device copies: a device that fails while copies are under way is told of at the next use, not at their end") {
  using On = OnHostDouble;
  shoal::Process<std::string> process(
      {.name = "copier"}, +[]() -> std::string {
        (void)On::devices();
        const at::Tensor source = pinned<On>(10, 1);
        {
          DeviceCopies copies(on<On>().device(), 4);
          copies.measure(true);
          auto gate = gate_of<On>(copies);
          const at::Tensor there = copied(copies, source);
          host_double::break_device();
          copies.finish();
          if (copies.unfinished() != 0) return "some are kept";
          try {
            (void)copied(copies, source);
            return "no error";
          } catch (const c10::Error&) {
          }
        }
        return "";
      });
  process.start();
  CHECK(process.result() == "");
  CHECK(nothing_left<On>());
}

TEST_CASE("device copies: who destroys them waits for what is under way, and for what it reads") {
  using On = OnHostDouble;
  std::atomic<bool> done{false};
  {
    DeviceCopies copies(on<On>().device(), 4);
    {
      const OnStream here(copies.stream());
      host_double::enqueue(0, [&done] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        done = true;
      });
    }
    (void)copied(copies, pinned<On>(10, 1));
  }
  CHECK(done);
  CHECK(nothing_left<On>());
}
