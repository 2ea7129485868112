// The order of a sender's stream, a receiver's, and what a receiver still does when it lets go.
#include <ATen/ATen.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>
#include <signal.h>

#include <vector>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Queues a copy of what it received at once, says so when its stream has nothing to do but to wait, and returns the
/// copy.
template <class On>
at::Tensor copy_at_once(Queue<at::Tensor> in, Event queued) {
  at::Tensor received = in.get();
  at::Tensor copy = received.clone();
  On::settle(c10::impl::VirtualGuardImpl(On::kType).getStream(received.device()));
  queued.set();
  return copy.cpu();
}

/// Receives, sends on the same tensor after it queued work on it, and is there until told.
template <class On>
void add_and_send_on(Queue<at::Tensor> in, Queue<at::Tensor> out, Event done) {
  On::load_kernels();  // what it receives waits for the sender's gate
  OnStream stream(new_stream<On>());
  at::Tensor received = in.get();
  received.add_(10);
  out.put(received);
  done.wait();
}

/// Receives, sends on the same tensor and ends, by a signal if there is one: its stream is never to write its word.
template <class On>
void send_on_and_end(Queue<at::Tensor> in, Queue<at::Tensor> out, int signal) {
  On::load_kernels();
  out.put(in.get());
  if (signal != 0) ::raise(signal);
}

/// Sends on the first of two, once the second one, a sign, has come.
template <class On>
void send_on_by_a_sign(Queue<at::Tensor> in, Queue<at::Tensor> out, int signal) {
  On::load_kernels();
  const at::Tensor tensor = in.get(), sign = in.get();
  out.put(tensor);
  if (signal != 0) ::raise(signal);
}

/// Sends a tensor whose values are there, and one whose values come when it is told for the first time; stays until it
/// is told again.
template <class On>
void send_twice(Queue<at::Tensor> out, Queue<at::Tensor> go_on) {
  const at::Tensor there = at::ones({10}, at::kFloat).to(on<On>().device());
  const at::Tensor awaited = at::zeros({10}, at::kFloat).to(on<On>().device());
  On::load_kernels();
  out.put(there);
  auto gate = On::close_gate();
  awaited.fill_(1);
  out.put(awaited);
  (void)go_on.get();
  gate.reset();
  (void)go_on.get();
}

template <class On>
void send_and_stay(Queue<at::Tensor> out, Event done) {
  const at::Tensor tensor = at::ones({10}, at::kFloat).to(on<On>().device());
  out.put(tensor);
  done.wait();
}

}  // namespace

DEVICE_TEST_CASE("a receiver that reads at once gets what the sender's stream wrote before it sent") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    at::Tensor tensor = at::zeros({1000}, at::kFloat).to(on<On>().device());
    Queue<at::Tensor> queue(4);
    Event queued;
    Process<at::Tensor> process({.name = "receiver"}, copy_at_once<On>, queue, queued);
    process.start();
    auto gate = On::close_gate();
    tensor.fill_(7);  // waits behind the gate
    queue.put(tensor);
    queued.wait();  // the receiver has the tensor and has queued its copy
    gate.reset();
    CHECK(process.result().equal(at::full({1000}, 7.0f)));
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("what is written after sending may come late: the receiver waits for no more than it has to") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    at::Tensor tensor = at::ones({10}, at::kFloat).to(on<On>().device());
    at::Tensor other = at::ones({10}, at::kFloat).to(on<On>().device());
    Queue<at::Tensor> queue(4);
    queue.put(tensor);
    auto gate = On::close_gate();
    Process<at::Tensor> process({.name = "receiver"}, copy_at_once<On>, queue, Event());
    process.start();
    CHECK(process.result().equal(at::ones({10})));  // with the gate closed
    gate.reset();
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("streams of one process are ordered, too, when it sends to itself") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    at::Tensor tensor = at::zeros({10}, at::kFloat).to(on<On>().device());
    Queue<at::Tensor> queue(4);
    const c10::Stream stream = new_stream<On>();
    at::Tensor copy;
    {
      OnStream current(stream);
      copy = at::empty_like(tensor);  // libtorch asks the driver for this stream's memory now
      copy = at::Tensor();
    }
    auto gate = On::close_gate();
    tensor.fill_(5);
    queue.put(tensor);
    {
      OnStream current(stream);
      copy = queue.get().clone();
      On::settle(stream);
    }
    gate.reset();
    OnStream current(stream);
    CHECK(copy.cpu().equal(at::full({10}, 5.0f)));
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a tensor is sent on to a third process, which waits for the second one's work") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    at::Tensor tensor = at::ones({10}, at::kFloat).to(on<On>().device());
    Queue<at::Tensor> first(4), second(4);
    Event queued, done;
    Process<void> forwarder({.name = "forwarder"}, add_and_send_on<On>, first, second, done);
    Process<at::Tensor> third({.name = "third"}, copy_at_once<On>, second, queued);
    forwarder.start();
    third.start();
    auto gate = On::close_gate();
    tensor.fill_(1);
    first.put(tensor);
    queued.wait();
    gate.reset();
    CHECK(third.result().equal(at::full({10}, 11.0f)));
    CHECK(tensor.cpu().equal(at::full({10}, 11.0f)));  // one memory for all three
    CHECK(device_ipc_statistics().exports == 1);       // the second one's is this one's
    done.set();
    forwarder.result();
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE(
    "whoever gets a tensor that was sent on waits for its producer's work, though those between have ended") {
  using On = TestType;
  if (skipped<On>()) return;
  const int between = GENERATE(1, 3);
  const int signal = GENERATE(0, SIGKILL);
  CAPTURE(between, signal);
  {
    at::Tensor tensor = at::zeros({1000}, at::kFloat).to(on<On>().device());
    std::vector<Queue<at::Tensor>> queues;
    for (int i = 0; i <= between; ++i) queues.emplace_back(4);
    Event queued;
    Process<at::Tensor> last({.name = "last"}, copy_at_once<On>, queues.back(), queued);
    last.start();
    auto gate = On::close_gate();
    tensor.fill_(7);  // waits behind the gate
    queues.front().put(tensor);
    for (int i = 0; i < between; ++i) {
      Process<void> each({.name = "between"}, send_on_and_end<On>, queues[std::size_t(i)], queues[std::size_t(i) + 1],
                         signal);
      each.start();
      each.join();
      CHECK(each.exitcode() == -signal);
    }
    queued.wait();
    gate.reset();
    CHECK(last.result().equal(at::full({1000}, 7.0f)));
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE(
    "whoever gets a tensor that was sent on waits for what another message said, though its receiver died") {
  using On = TestType;
  if (skipped<On>()) return;
  const int signal = GENERATE(0, SIGKILL);
  CAPTURE(signal);
  {
    at::Tensor tensor = at::zeros({1000}, at::kFloat).to(on<On>().device());
    Queue<at::Tensor> first(2), second(1);
    Event queued;
    Process<at::Tensor> last({.name = "last"}, copy_at_once<On>, second, queued);
    last.start();
    first.put(tensor);  // nothing to wait for
    auto gate = On::close_gate();
    tensor.fill_(7);  // waits behind the gate
    first.put(at::ones({1}, at::kFloat).to(on<On>().device()));
    Process<void> between({.name = "between"}, send_on_by_a_sign<On>, first, second, signal);
    between.start();
    between.join();
    CHECK(between.exitcode() == -signal);
    queued.wait();
    gate.reset();
    CHECK(last.result().equal(at::full({1000}, 7.0f)));
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a tensor that is sent on brings the words that it and its stream wait for, and none that are there") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(2), go_on(1);
    Process<void> process({.name = "sender"}, send_twice<On>, queue, go_on);
    process.start();
    const at::Tensor there = queue.get();
    const c10::Stream stream = new_stream<On>();
    const auto received_on = [&](const c10::Stream& current) {
      OnStream on(current);
      return queue.get();
    };
    const at::Tensor awaited = received_on(stream);
    const auto handles = [](const at::Tensor& tensor) {
      Encoder message;
      encode(message, tensor);
      return message.handles().size();
    };
    constexpr std::size_t kExportAndOwnWord = 2;
    CHECK(eventually([&] { return handles(there) == kExportAndOwnWord; }));
    CHECK(handles(awaited) == kExportAndOwnWord + 1);
    {
      OnStream on(stream);
      CHECK(handles(there) == kExportAndOwnWord + 1);
      CHECK(handles(awaited) == kExportAndOwnWord + 1);  // the same word once
    }
    go_on.put(at::zeros({1}));  // the gate opens
    CHECK(eventually([&] { return handles(awaited) == kExportAndOwnWord; }));
    go_on.put(at::zeros({1}));
    CHECK(awaited.cpu().equal(at::ones({10})));
    process.join();
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("memory that a receiver's stream still reads is not given back, though its tensor is gone") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(4);
    Event queued, go_on;
    Process<at::Tensor> process(
        {.name = "receiver"},
        +[](Queue<at::Tensor> in, Event queued, Event go_on) {
          auto gate = On::close_gate();
          at::Tensor copy;
          {
            at::Tensor received = in.get();
            copy = received.clone();  // behind the gate
          }
          ipc_collect();
          queued.set();
          go_on.wait();
          gate.reset();
          return copy.cpu();
        },
        queue, queued, go_on);
    process.start();
    const std::size_t before = On::bytes_in_storages();
    queue.put(at::full({1000}, 3.0f).to(on<On>().device()));
    queued.wait();
    ipc_collect();
    ipc_collect();
    CHECK(device_ipc_statistics().exports == 1);
    CHECK(On::bytes_in_storages() >= before + 4000);
    go_on.set();
    CHECK(process.result().equal(at::full({1000}, 3.0f)));
    CHECK(wait_until_released(std::chrono::seconds(10)));
    CHECK(On::bytes_in_storages() == before);
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("on a stream that is captured into a graph, sending and receiving are refused by name") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const at::Tensor tensor = at::ones({10}, at::kFloat).to(on<On>().device());
    Queue<at::Tensor> queue(4);
    queue.put(tensor);
    const c10::Stream stream = new_stream<On>();
    {
      const OnStream here(stream);
      const typename On::Capture capture(stream);
      CHECK_THROWS_WITH(queue.put(tensor), ContainsSubstring("cannot be sent while this thread's stream is captured") &&
                                               ContainsSubstring(on<On>().device().str()));
      CHECK_THROWS_WITH(queue.get(), ContainsSubstring("cannot be received while this thread's stream is captured"));
      const OnStream other(new_stream<On>());
      queue.put(tensor);
    }
    CHECK(queue.get().cpu().equal(at::ones({10}, at::kFloat)));
    CHECK(queue.qsize() == 0);
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("letting go of a received tensor breaks no capture, and it goes back when the capture has ended") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(4);
    Event done;
    Process<void> process({.name = "sender"}, send_and_stay<On>, queue, done);
    process.start();
    at::Tensor received = queue.get();
    REQUIRE(device_ipc_statistics().imports == 1);
    {
      const c10::Stream stream = new_stream<On>();
      const OnStream here(stream);
      const typename On::Capture capture(stream);
      received.reset();
      ipc_collect();  // in another place of the same thread; the collector's thread looks as well
      CHECK(device_ipc_statistics().imports == 1);
      CHECK_FALSE(capture.is_broken());
    }
    CHECK(eventually([] {
      ipc_collect();
      return device_ipc_statistics().imports == 0;
    }));
    done.set();
    process.join();
  }
  CHECK(nothing_left<On>());
}
