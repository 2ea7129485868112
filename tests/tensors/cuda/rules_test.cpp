// What shoal does where a device's rules are strict: captures of other threads, contexts, errors that stick, memory that
// begins inside of an allocation.
#include <ATen/ATen.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>

#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"
#include "tests/tensors/libtorch_version.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Sends that many tensors of 100 elements, each its number, and stays.
template <class On>
void send_and_stay(Queue<at::Tensor> out, int count, int device, Event done) {
  for (int i = 0; i < count; ++i) out.put(at::full({100}, double(i)).to(on<On>(device).device()));
  done.wait();
  wait_until_released(std::chrono::seconds(10));
}

}  // namespace

DEVICE_TEST_CASE(
    "receiving and letting go on one thread break no capture of another one, and nothing goes back early") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(8);
    Event done;
    Process<void> process({.name = "sender"}, send_and_stay<On>, queue, 4, 0, done);
    process.start();
    std::vector<at::Tensor> received;
    for (int i = 0; i < 2; ++i) received.push_back(queue.get());
    (void)received[0].cpu();
    auto gate = On::close_gate();
    at::Tensor copy = received[0].clone();  // behind the gate
    received[0] = at::Tensor();             // in use until the gate opens
    const c10::Stream captured = new_stream<On>();
    bool broken = true;
    std::thread([&] {
      const typename On::Capture capture(captured);
      std::thread([&] {
        OnStream stream(new_stream<On>());
        for (int i = 2; i < 4; ++i) received.push_back(queue.get());
        received[1] = at::Tensor();
        ipc_collect();
      }).join();
      broken = capture.is_broken();
    }).join();
    CHECK_FALSE(broken);
    // The one behind the gate, and two that are there.
    CHECK(eventually([] { return device_ipc_statistics().imports == 3; }));
    gate.reset();
    CHECK(copy.cpu().equal(at::zeros({100})));
    for (int i = 2; i < 4; ++i) CHECK(received[std::size_t(i)].cpu().equal(at::full({100}, double(i))));
    received.clear();
    done.set();
    process.result();
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a process that receives from another device makes no context on its first one") {
  using On = OnHostDouble;
  {
    Queue<at::Tensor> queue(8);
    Event done;
    Process<void> sender({.name = "sender"}, send_and_stay<On>, queue, 3, 1, done);
    sender.start();
    Process<std::vector<int>> receiver(
        {.name = "receiver"},
        +[](Queue<at::Tensor> in) {
          auto gate = std::make_unique<host_double::Gate>(1);
          for (int i = 0; i < 3; ++i) (void)in.get().add_(1);  // let go of while they are in use
          gate.reset();
          while (device_ipc_statistics().imports != 0) std::this_thread::yield();  // the collector's thread asks
          ipc_collect();
          return host_double::contexts();
        },
        queue);
    receiver.start();
    CHECK(receiver.result() == std::vector<int>{1});
    done.set();
    sender.result();
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a receiver whose device has failed lets go without a word, keeps what it has, and ends") {
  using On = OnHostDouble;
  {
    Queue<at::Tensor> queue(8);
    Event let_go, end;
    Process<void> receiver(
        {.name = "receiver"},
        +[](Queue<at::Tensor> in, Event let_go, Event end) {
          {
            const at::Tensor received = in.get();
            (void)received.cpu();
            host_double::break_device();
          }
          ipc_collect();
          if (device_ipc_statistics().imports != 1)
            throw Error("given up, though nothing says that it is in use no more");
          let_go.set();
          end.wait();
        },
        queue, let_go, end);
    receiver.start();
    queue.put(at::ones({100}).to(on<On>().device()));
    let_go.wait();
    ipc_collect();
    CHECK(device_ipc_statistics().exports == 1);
    end.set();
    receiver.result();
    CHECK(wait_until_released(std::chrono::seconds(10)));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: storages that are allocations of their own cross, and each is opened by itself") {
  using On = OnHostDouble;
  {
    host_double::use_suballocations(true);
    std::vector<at::Tensor> sent;
    for (int i = 0; i < 5; ++i) sent.push_back(at::full({100}, double(i)).to(on<On>().device()));
    Process<std::vector<at::Tensor>> process(
        {.name = "reader"},
        +[](const std::vector<at::Tensor>& received) {
          std::vector<at::Tensor> seen;
          for (const at::Tensor& each : received) seen.push_back(each.cpu());
          if (device_ipc_statistics().open_bases != 5) throw Error("another number of allocations");
          return seen;
        },
        sent);
    process.start();
    CHECK(device_ipc_statistics().exported_bases == 5);
    const std::vector<at::Tensor> seen = process.result();
    for (int i = 0; i < 5; ++i) CHECK(seen[std::size_t(i)].equal(at::full({100}, double(i))));
    host_double::use_suballocations(false);
  }
  CHECK(nothing_left<On>());
}
