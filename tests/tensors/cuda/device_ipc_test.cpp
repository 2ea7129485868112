// Tensors on a device between processes. The same cases run on the host double and, where there is one, on a GPU.
#include <ATen/ATen.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>
#include <shoal/tensors/share.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Arguments and results by value, on the host: what the receiver saw.
std::vector<at::Tensor> read_all(const std::vector<at::Tensor>& received) {
  std::vector<at::Tensor> seen;
  for (const at::Tensor& each : received) seen.push_back(each.defined() ? each.cpu() : each);
  return seen;
}

double sum_and_write(Queue<at::Tensor> in) {
  at::Tensor received = in.get();
  const double sum = received.cpu().sum().item<double>();
  received.fill_(3);
  (void)received.cpu();
  return sum;
}

at::Tensor numbers(const c10::TensorOptions& options, std::int64_t count) {
  return at::arange(count, at::kFloat).to(options.device());
}

struct Openings {
  std::uint64_t openings, open_bases, imports;
};

/// Receives that many tensors, one message each, keeps all or none, and returns what it opened.
Openings receive(Queue<at::Tensor> in, int count, bool keep_all) {
  const std::size_t before = device_ipc_statistics().openings;
  std::vector<at::Tensor> kept;
  for (int i = 0; i < count; ++i) {
    at::Tensor received = in.get();
    if (received.numel() != 1 || received.cpu().item<float>() != float(i))
      throw std::runtime_error("tensor " + std::to_string(i) + " is another one");
    if (keep_all) kept.push_back(std::move(received));
  }
  const DeviceIpcStatistics now = device_ipc_statistics();
  return {now.openings - before, now.open_bases, now.imports};
}

/// Until it has stopped itself (stop_at); the test's watchdog ends a wait that has no end.
void wait_until_stopped(pid_t pid) {
  for (std::string state; state != "T"; ::usleep(100)) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name;
    file >> number >> name >> state;
  }
}

}  // namespace

DEVICE_TEST_CASE("a receiver's tensor is the sender's memory") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    at::Tensor tensor = at::full({10, 10}, 2.0, at::kFloat).to(on<On>().device());
    Queue<at::Tensor> queue(4);
    Process<double> process({.name = "receiver"}, sum_and_write, queue);
    process.start();
    queue.put(tensor.select(0, 1));
    CHECK(process.result() == 20);
    CHECK(tensor.cpu().sum().template item<double>() == 180 + 30);
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("views, types, empty and 0-d tensors cross as what they are, as arguments too") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const at::Tensor base = numbers(on<On>(), 120).view({4, 5, 6});
    const c10::Device device = on<On>().device();
    std::vector<at::Tensor> sent{base,
                                 base.permute({2, 0, 1}),
                                 base.slice(1, 1, 5, 2),
                                 base.select(0, 3),
                                 base.select(0, 1).select(0, 1).select(0, 1),
                                 base.slice(0, 2, 3).expand({7, 5, 6}),
                                 at::empty({0, 3}, on<On>()),
                                 at::arange(7, at::kLong).to(device),
                                 at::ones({3}, at::kBool).to(device),
                                 at::ones({3}, at::kHalf).to(device),
                                 at::ones({3}, at::kBFloat16).to(device),
                                 at::Tensor()};
    Process<std::vector<at::Tensor>> process({.name = "reader"}, read_all, sent);
    process.start();
    std::vector<at::Tensor> seen = process.result();
    REQUIRE(seen.size() == sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      INFO("tensor " << i);
      REQUIRE(seen[i].defined() == sent[i].defined());
      if (!sent[i].defined()) continue;
      CHECK(seen[i].scalar_type() == sent[i].scalar_type());
      CHECK(seen[i].equal(sent[i].cpu()));
    }
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("10,000 slices of one storage are one opening, kept or let go one by one") {
  using On = TestType;
  if (skipped<On>()) return;
  constexpr int kSlices = 10'000;
  for (bool keep_all : {true, false}) {
    at::Tensor tensor = numbers(on<On>(), kSlices);
    Queue<at::Tensor> queue(256);
    Process<Openings> process({.name = "receiver"}, receive, queue, kSlices, keep_all);
    process.start();
    for (int i = 0; i < kSlices; ++i) queue.put(tensor.slice(0, i, i + 1));
    const Openings seen = process.result();
    // Unused for two tenths of a second an opening is closed: on a machine that is so busy it may be opened again.
    CHECK(seen.openings >= 1);
    CHECK(seen.openings <= (keep_all ? 1 : 10));
    CHECK(seen.open_bases == 1);
    CHECK(seen.imports <= (keep_all ? 1 : 4));  // one storage, as at the sender; or some whose work is not done yet
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("1,000 storages in one allocation are one opening") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    constexpr int kStorages = 1'000;
    std::vector<at::Tensor> storages;
    for (int i = 0; i < kStorages; ++i) storages.push_back(at::full({1}, float(i)).to(on<On>().device()));
    Queue<at::Tensor> queue(kStorages);
    Process<Openings> process({.name = "receiver"}, receive, queue, kStorages, true);
    process.start();
    for (const at::Tensor& each : storages) queue.put(each);
    const Openings seen = process.result();
    CHECK(seen.openings == seen.open_bases);
    CHECK(seen.openings <= 2);  // 1,000 times 512 bytes: one allocation of 2 MiB, or the end of one and a next
    CHECK(seen.imports == kStorages);
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("tensors that share a storage share it on the other side, in one message and across messages") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<std::vector<at::Tensor>> queue(4);
    Process<bool> process(
        {.name = "receiver"},
        +[](Queue<std::vector<at::Tensor>> in) {
          auto first = in.get(), second = in.get();
          const auto storage = [](const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); };
          return storage(first[0]) == storage(first[1]) && storage(first[0]) == storage(second[0]) &&
                 storage(first[0]) != storage(second[1]);
        },
        queue);
    process.start();
    const at::Tensor tensor = numbers(on<On>(), 100), other = numbers(on<On>(), 100);
    queue.put({tensor.slice(0, 0, 10), tensor.slice(0, 50, 60)});
    queue.put({tensor.slice(0, 90, 100), other});
    CHECK(process.result());
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("an own handle is recognised, and nothing is opened") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const std::size_t before = device_ipc_statistics().openings;
    Queue<at::Tensor> queue(4);
    const void* data;
    {
      at::Tensor tensor = numbers(on<On>(), 100);
      data = tensor.data_ptr();
      queue.put(tensor.slice(0, 10, 20));
    }
    CHECK(device_ipc_statistics().exports == 1);  // the message keeps it, though the sender's tensor is gone
    at::Tensor back = queue.get();
    CHECK(back.storage().data() == data);
    CHECK(back.cpu().equal(at::arange(10, 20, at::kFloat)));
    CHECK(device_ipc_statistics().openings == before);
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("requires_grad of a leaf is kept, a tensor that is no leaf is refused") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(4);
    at::Tensor leaf = numbers(on<On>(), 4).requires_grad_();
    queue.put(leaf);
    CHECK(queue.get().requires_grad());
    CHECK_THROWS_WITH(queue.put(leaf.view({2, 2})), ContainsSubstring("detach"));
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("an exported storage is not resizable: others use its memory") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(4);
    at::Tensor tensor = numbers(on<On>(), 4);
    CHECK(tensor.storage().resizable());
    queue.put(tensor);
    CHECK_FALSE(tensor.storage().resizable());
    CHECK_FALSE(queue.get().storage().resizable());
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("devices are matched by UUID where processes see them in another order") {
  using On = TestType;
  if (skipped<On>(2)) return;
  {
    Queue<at::Tensor> queue(4);
    Process<std::vector<int>> process(
        {.name = "receiver", .start_method = StartMethod::spawn},
        +[](Queue<at::Tensor> in) {
          On::show_devices({1, 0});
          std::vector<int> seen;
          for (int i = 0; i < 2; ++i) {
            at::Tensor received = in.get();
            if (received.cpu().item<float>() != float(i)) throw std::runtime_error("another tensor");
            seen.push_back(received.device().index());
          }
          return seen;
        },
        queue);
    process.start();
    queue.put(at::full({}, 0.0f).to(on<On>(0).device()));
    queue.put(at::full({}, 1.0f).to(on<On>(1).device()));
    CHECK(process.result() == std::vector<int>{1, 0});
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a process that has used a device starts others, by exec and by the fork server") {
  using On = TestType;
  if (skipped<On>()) return;
  for (const StartMethod method : {StartMethod::spawn, StartMethod::forkserver}) {
    const at::Tensor used = numbers(on<On>(), 4);
    Process<float> process(
        {.name = "summer", .start_method = method},
        +[](const at::Tensor& tensor) { return tensor.cpu().sum().item<float>(); }, used);
    process.start();
    CHECK(process.result() == used.cpu().sum().item<float>());
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a tensor on a device that the receiver does not see is refused by the device's name") {
  using On = TestType;
  if (skipped<On>(2)) return;
  {
    Queue<at::Tensor> queue(4);
    Process<std::string> process(
        {.name = "receiver", .start_method = StartMethod::spawn},
        +[](Queue<at::Tensor> in) -> std::string {
          On::show_devices({1});
          try {
            (void)in.get();
          } catch (const DeviceError& error) {
            return error.what();
          }
          return "";
        },
        queue);
    process.start();
    queue.put(at::ones({4}).to(on<On>(0).device()));
    const std::string said = process.result();
    CHECK_THAT(said, ContainsSubstring(device_memory(On::kType).uuid(0).str()));
    CHECK_THAT(said, ContainsSubstring("CUDA_VISIBLE_DEVICES"));
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("share_memory_ leaves a tensor on a device as it is: it is shared already") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    at::Tensor tensor = numbers(on<On>(), 10);
    const void* data = tensor.data_ptr();
    CHECK(is_shared(tensor));
    share_memory_(tensor);
    CHECK(tensor.data_ptr() == data);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: what is on a device that cannot be shared is refused by name") {
  Queue<at::Tensor> queue(4);
  CHECK_THROWS_AS(device_memory(c10::kXPU), DeviceError);
  CHECK_THROWS_WITH(device_memory(c10::kCPU), ContainsSubstring("cpu()"));
  if (OnCuda::devices() == 0) CHECK_THROWS_AS(device_memory(c10::kCUDA), DeviceError);
}

TEST_CASE("device ipc: a process that has used a device is not to be forked") {
  {
    const at::Tensor used = at::ones({4}).to(on<OnHostDouble>().device());
    (void)used.cpu();
    CHECK_THAT(device_fork_refusal(), ContainsSubstring("fork"));
  }
  CHECK(nothing_left<OnHostDouble>());
}

TEST_CASE("device ipc: a producer that dies while its memory is being opened is PeerDied") {
  Queue<at::Tensor> queue(1);
  Process<void> producer(
      {.name = "producer"},
      [](Queue<at::Tensor> out) {
        out.put(at::ones({4}).to(on<OnHostDouble>().device()));
        for (;;) ::pause();
      },
      queue);
  Process<std::string> receiver(
      {.name = "receiver"},
      [](Queue<at::Tensor> in) -> std::string {
        (void)OnHostDouble::devices();
        stop_at("device.import.before_open");
        try {
          (void)in.get();
        } catch (const PeerDied& error) {
          return error.what();
        }
        return "";
      },
      queue);
  producer.start();
  receiver.start();
  wait_until_stopped(receiver.pid());
  producer.kill();
  producer.join();
  ::kill(receiver.pid(), SIGCONT);
  CHECK_THAT(receiver.result(), ContainsSubstring("has ended, and the device's memory with it"));
}
