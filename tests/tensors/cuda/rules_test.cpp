// What shoal does where a device's rules are strict: captures of other threads, contexts, errors that stick, memory that
// begins inside of an allocation.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Receives, and says so as soon as it has looked at the sender's word. Returns the first element, or -1 if a stream was
/// told to wait.
float receive_where_refused(Queue<at::Tensor> in, Event looked, bool words) {
  using host_double::Refusal;
  host_double::refuse(words ? Refusal::kWords : Refusal::kRegistrations);
  std::thread tells([&] {
    (void)eventually([] { return device_ipc_statistics().word_pages == 1; });
    looked.set();
  });
  float first = -1;
  std::exception_ptr error;
  try {
    first = in.get().cpu()[0].item<float>();
  } catch (...) {
    error = std::current_exception();
  }
  tells.join();
  if (error) std::rethrow_exception(error);
  return host_double::words_awaited() == 0 ? first : -1;
}

/// Sends that many tensors of 100 elements, each its number, and stays.
template <class On>
void send_numbers_and_stay(Queue<at::Tensor> out, int count, int device, Event done) {
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
    Process<void> process({.name = "sender"}, send_numbers_and_stay<On>, queue, 4, 0, done);
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

DEVICE_TEST_CASE("what the collector's thread frees may ask about events beside another thread's capture") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const at::Tensor memory = at::zeros({10}, at::kFloat).to(on<On>().device());
    c10::Event event(On::kType);
    const c10::Stream stream = new_stream<On>();
    event.record(stream);
    stream.synchronize();
    std::atomic<bool> freed{false}, answered{false};
    // As an allocator of the user's may do.
    const auto ask = [&] {
      try {
        answered = event.query();
      } catch (const c10::Error&) {
      }
      freed = true;
    };
    std::optional<Encoder> message(std::in_place);
    {
      c10::DataPtr data(
          memory.data_ptr(), new std::function<void()>(ask),
          [](void* given) {
            const std::unique_ptr<std::function<void()>> call(static_cast<std::function<void()>*>(given));
            (*call)();
          },
          memory.device());
      (void)DeviceIpc::current().encode(
          *message, c10::Storage(c10::Storage::use_byte_size_t(), 40, std::move(data), nullptr, false));
    }
    const c10::Stream captured = new_stream<On>();
    {
      const typename On::Capture capture(captured);
      message.reset();
      CHECK(eventually([&] { return freed.load(); }));
      CHECK_FALSE(capture.is_broken());
    }
    CHECK(answered);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a stream is synchronized before a tensor is sent, beside another thread's capture") {
  using On = OnHostDouble;
  {
    const at::Tensor tensor = at::full({10}, 2.0f).to(on<On>().device());
    Queue<at::Tensor> queue(1);
    const c10::Stream captured = new_stream<On>();
    host_double::allow_words(false);
    {
      const On::Capture capture(captured);
      std::thread([&] { CHECK_NOTHROW(queue.put(tensor)); }).join();
      CHECK_FALSE(capture.is_broken());
    }
    host_double::allow_words(true);
    CHECK(queue.get().cpu().equal(at::full({10}, 2.0f)));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: where the driver registers no page, senders synchronize, and receiving threads wait") {
  using On = OnHostDouble;
  {
    const at::Tensor tensor = at::zeros({1'000'000}, at::kFloat).to(on<On>().device());
    Queue<at::Tensor> queue(1), late(1);
    const c10::Stream stream = new_stream<On>();
    const OnStream here(stream);
    host_double::refuse(host_double::Refusal::kRegistrations);
    for (int i = 0; i < 20; ++i) tensor.add_(1);
    queue.put(tensor);
    CHECK(stream.query());
    CHECK(device_ipc_statistics().word_pages == 0);
    host_double::refuse(host_double::Refusal::kNothing);
    CHECK(queue.get().cpu().equal(at::full({1'000'000}, 20.0f)));
    queue.put(tensor);
    CHECK(device_ipc_statistics().word_pages == 0);  // the driver is not asked at each message
    (void)queue.get();

    Event looked;
    Process<float> process({.name = "receiver"}, receive_where_refused, late, looked, false);
    process.start();
    ipc_collect();  // the driver is asked again
    {
      auto gate = On::close_gate();
      tensor.add_(1);
      late.put(tensor);
      CHECK(device_ipc_statistics().word_pages == 1);
      looked.wait();
    }
    CHECK(process.result() == 21);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: where the driver refuses a word, sending says so, and a receiving thread waits") {
  using On = OnHostDouble;
  {
    const at::Tensor tensor = at::zeros({10}, at::kFloat).to(on<On>().device());
    Queue<at::Tensor> queue(1);
    queue.put(tensor);
    (void)queue.get();
    host_double::refuse(host_double::Refusal::kWords);
    CHECK_THROWS_AS(queue.put(tensor), DeviceError);
    CHECK(queue.empty());
    host_double::refuse(host_double::Refusal::kNothing);
    CHECK(eventually([] { return device_ipc_statistics().words == 0; }));  // nobody waits for what was not queued

    Event looked;
    Process<float> process({.name = "receiver"}, receive_where_refused, queue, looked, true);
    process.start();
    {
      auto gate = On::close_gate();
      tensor.add_(1);
      queue.put(tensor);
      looked.wait();
    }
    CHECK(process.result() == 1);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a process that receives from another device makes no context on its first one") {
  using On = OnHostDouble;
  {
    Queue<at::Tensor> queue(8);
    Event received, done;
    Process<std::vector<int>> sender(
        {.name = "sender"},
        +[](Queue<at::Tensor> out, Event received, Event done) {
          std::shared_ptr<void> gate;
          for (int i = 0; i < 3; ++i) {
            host_double::allow_words(i != 0);  // the stream is synchronized first, and then writes words
            const at::Tensor tensor = at::full({100}, double(i)).to(on<On>(1).device());
            if (i == 2) gate = On::close_gate(1);  // so that the receiver's stream waits
            out.put(tensor);
          }
          received.wait();
          gate.reset();
          done.wait();
          wait_until_released(std::chrono::seconds(10));
          ipc_collect();
          ipc_collect();
          return host_double::contexts();
        },
        queue, received, done);
    sender.start();
    Process<std::vector<int>> receiver(
        {.name = "receiver"},
        +[](Queue<at::Tensor> in, Event received) {
          auto gate = On::close_gate(1);
          for (int i = 0; i < 3; ++i) (void)in.get().add_(1);  // let go of while they are in use
          received.set();
          gate.reset();
          while (device_ipc_statistics().imports != 0) std::this_thread::yield();  // the collector's thread asks
          ipc_collect();
          ipc_collect();
          return host_double::contexts();
        },
        queue, received);
    receiver.start();
    CHECK(receiver.result() == std::vector<int>{1});
    done.set();
    CHECK(sender.result() == std::vector<int>{1});
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
