// Words that are awaited while somebody dies, sends on, or lies.
#include <ATen/ATen.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/internal/tensors/cuda/make_layout.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace awaited_words_test {

namespace {

using On = OnHostDouble;

bool is_idle(c10::Stream stream) { return c10::impl::VirtualGuardImpl(stream.device_type()).queryStream(stream); }

/// Sends a tensor whose values come behind a gate that never opens.
void send_behind_a_gate(Queue<at::Tensor> out) {
  const at::Tensor tensor = at::zeros({10}, at::kFloat).to(on<On>().device());
  auto gate = On::close_gate();
  tensor.fill_(1);
  out.put(tensor);
  ::pause();
}

/// Copies what it receives at once, and says when its stream has nothing to do but to wait.
at::Tensor copy_at_once(Queue<at::Tensor> in, Event queued) {
  const at::Tensor received = in.get();
  const at::Tensor copy = received.clone();
  On::settle(c10::impl::VirtualGuardImpl(On::kType).getStream(received.device()));
  queued.set();
  return copy.cpu();
}

void send_zeros_and_stay(Queue<at::Tensor> out, Event done) {
  const at::Tensor tensor = at::zeros({10}, at::kFloat).to(on<On>().device());
  out.put(tensor);
  done.wait();
}

void send_often_behind_a_gate(Queue<at::Tensor> out, int messages, Event go, Event done) {
  const at::Tensor tensor = at::zeros({10}, at::kFloat).to(on<On>().device());
  auto gate = On::close_gate();
  tensor.fill_(3);
  for (int i = 0; i < messages; ++i) out.put(tensor);
  go.wait();
  gate.reset();
  done.wait();
}

}  // namespace

TEST_CASE("device ipc: a late write of a dead process stops no stream, though another receiver had raised its word") {
  {
    On::load_kernels();
    Queue<at::Tensor> queue(1);
    Process<void> process({.name = "sender"}, send_behind_a_gate, queue);
    process.start();
    host_double::set_after_death(process.pid(), host_double::AfterDeath::kWritesLate);
    const c10::Stream stream = new_stream<On>();
    const OnStream here(stream);
    auto gate = On::close_gate();  // the stream is busy: it has still to come to its wait
    const at::Tensor received = queue.get();
    auto words = DeviceIpc::current().received_words().unreached(received.device(), {});
    REQUIRE(words.size() == 1);
    const Word word{reinterpret_cast<DeviceWordsLayout*>(words[0].page.data()), words[0].index};
    ::kill(process.pid(), SIGKILL);
    process.join();
    word.raise(words[0].value);  // as any other receiver's watch does
    CHECK(DeviceIpc::current().received_words().waits() == 1);
    gate.reset();
    CHECK(eventually([&] { return is_idle(stream); }));
    host_double::set_after_death(0, host_double::AfterDeath::kNothing);
    word.raise(words[0].value);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: what was received waits for another stream of its own process, also where it is sent on") {
  {
    On::load_kernels();
    Queue<at::Tensor> from(1), self(1), out(1);
    Event done, queued;
    Process<void> owner({.name = "owner"}, send_zeros_and_stay, from, done);
    owner.start();
    const at::Tensor tensor = from.get();
    (void)tensor.cpu();
    Process<at::Tensor> last({.name = "last"}, copy_at_once, out, queued);
    last.start();
    const c10::Stream writes = new_stream<On>(), receives = new_stream<On>();
    std::shared_ptr<void> gate;
    {
      const OnStream here(writes);
      gate = On::close_gate();
      tensor.fill_(7);
      self.put(tensor);
    }
    at::Tensor again;
    {
      const OnStream here(receives);
      again = self.get();
    }
    CHECK_FALSE(is_idle(receives));
    out.put(again);  // on the default stream, which waits for nothing
    queued.wait();
    gate.reset();
    CHECK(last.result().equal(at::full({10}, 7.0f)));
    receives.synchronize();
    done.set();
    owner.result();
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a storage that comes often waits for the last of its words") {
  {
    On::load_kernels();
    constexpr int kMessages = 300;
    Queue<at::Tensor> queue(kMessages), out(1);
    Event go, done, queued;
    Process<void> owner({.name = "owner"}, send_often_behind_a_gate, queue, kMessages, go, done);
    owner.start();
    Process<at::Tensor> last({.name = "last"}, copy_at_once, out, queued);
    last.start();
    at::Tensor tensor;
    {
      const OnStream here(new_stream<On>());
      for (int i = 0; i < kMessages; ++i) tensor = queue.get();
    }
    out.put(tensor);  // on another stream: its own list of words goes along
    queued.wait();
    go.set();
    CHECK(last.result().equal(at::full({10}, 3.0f)));
    done.set();
    owner.result();
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a page that names its receiver as its maker is refused") {
  {
    On::load_kernels();
    const Hold page = allocate_shared(sizeof(DeviceWordsLayout));
    auto* layout = make_layout<DeviceWordsLayout>(page.data(), c10::Device(On::kType, 0));
    layout->producer = Session::current().self().word();
    layout->queued[0] = 1;
    ReceivedWords& words = DeviceIpc::current().received_words();
    CHECK_THROWS_AS(words.wait(page, {0, 0, 1}, c10::Device(On::kType, 0)), DecodeError);
    Word{layout, 0}.raise(1);
    (void)words.wait(page, {0, 0, 1}, c10::Device(On::kType, 0));  // there: nobody waits
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a tensor arrives though the device has no event left for its mark") {
  {
    On::load_kernels();
    Queue<at::Tensor> queue(1);
    Process<void> process({.name = "sender"}, send_behind_a_gate, queue);
    process.start();
    CHECK(eventually([&] { return queue.qsize() == 1; }));
    const c10::impl::VirtualGuardImpl guard(On::kType);
    const c10::Device device = on<On>().device();
    std::vector<void*> events;
    try {
      for (;;) {
        void* event = nullptr;
        guard.record(&event, guard.getStream(device), 0, c10::EventFlag::PYTORCH_DEFAULT);
        events.push_back(event);
      }
    } catch (const c10::Error&) {
    }
    const at::Tensor received = queue.get();
    CHECK(received.defined());
    for (void* event : events) guard.destroyEvent(event, 0);
    ::kill(process.pid(), SIGKILL);
    process.join();
  }
  CHECK(nothing_left<On>());
}

}  // namespace awaited_words_test
