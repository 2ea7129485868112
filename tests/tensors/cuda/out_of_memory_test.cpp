// What an allocator of a device's memory gets from shoal before it says that memory is out.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <shoal/internal/tensors/cuda/before_out_of_memory.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/host_double/host_double.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// A storage over this tensor's memory, whose end calls the function.
c10::Storage storage_that_tells(const at::Tensor& memory, std::function<void()> freed) {
  c10::DataPtr data(
      memory.data_ptr(), new std::function<void()>(std::move(freed)),
      [](void* given) {
        const std::unique_ptr<std::function<void()>> call(static_cast<std::function<void()>*>(given));
        (*call)();
      },
      memory.device());
  return {c10::Storage::use_byte_size_t(), memory.nbytes(), std::move(data), nullptr, false};
}

/// Makes it an export that nobody else has.
void send_and_drop(c10::Storage storage) {
  Encoder message;
  (void)DeviceIpc::current().encode(message, storage);
}

/// Both ends of a tensor of bytes.
std::array<at::Tensor, 2> ends(const at::Tensor& tensor) {
  const std::int64_t size = tensor.size(0);
  return {tensor.slice(0, 0, 1000), tensor.slice(0, size - 1000, size)};
}

bool is_made_of(int number, const at::Tensor& tensor) {
  return std::ranges::all_of(ends(tensor), [number](const at::Tensor& end) {
    return end.cpu().equal(at::full({end.size(0)}, number, at::kByte));
  });
}

/// Says of each tensor, when it has let go of it, whether it was made of the number that is expected.
void look(Queue<at::Tensor> tensors, Queue<bool> answers, int count) {
  for (int i = 0; i < count; ++i) {
    const bool is_right = is_made_of(i, tensors.get());
    answers.put(is_right);
  }
}

/// The bytes that are free, where that can be chosen few.
template <class On>
std::size_t room() {
  if constexpr (On::kIsDouble) {
    constexpr std::size_t kBytes = 64 << 20;
    host_double::limit_memory(host_double::bytes_of_allocations() + kBytes);
    return kBytes;
  } else {
    return c10::getDeviceAllocator(On::kType)->getMemoryInfo(0).first;
  }
}

}  // namespace

DEVICE_TEST_CASE("an allocator that needs memory gets what only this process holds, and waits for no thread") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const std::size_t before = On::bytes_in_storages();
    Queue<at::Tensor> queue(1);
    queue.put(at::full({1000}, 3.0f).to(on<On>().device()));
    CHECK_FALSE(DeviceIpc::give_back_for_allocator());
    (void)queue.get().cpu();
    CHECK(eventually([&] { return DeviceIpc::give_back_for_allocator() || device_ipc_statistics().exports == 0; }));
    CHECK(On::bytes_in_storages() == before);

    // A thread that frees memory may be waiting for the allocator's lock.
    Event freeing, go_on;
    send_and_drop(storage_that_tells(at::zeros({10}, at::kFloat).to(on<On>().device()), [freeing, go_on]() mutable {
      freeing.set();
      go_on.wait();
    }));
    CHECK(eventually([&] { return freeing.is_set(); }));
    CHECK_FALSE(DeviceIpc::give_back_for_allocator());
    go_on.set();
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE(
    "of two allocators that need memory at a time one gets it: each may hold the lock that the other needs") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const at::Tensor memory = at::zeros({10}, at::kFloat).to(on<On>().device());
    std::atomic<int> freed{0};
    Event go_on;
    // One holds up the collector's thread, one the first allocator; the third is there to be had.
    std::optional<Encoder> message(std::in_place);
    for (int i = 0; i < 3; ++i)
      (void)DeviceIpc::current().encode(*message, storage_that_tells(memory, [&freed, go_on]() mutable {
        if (++freed <= 2) go_on.wait();
      }));
    message.reset();
    CHECK(eventually([&] { return freed == 1; }));
    std::thread first([] { (void)DeviceIpc::give_back_for_allocator(); });
    CHECK(eventually([&] { return freed == 2; }));
    CHECK_FALSE(DeviceIpc::give_back_for_allocator());
    CHECK(freed == 2);
    go_on.set();
    first.join();
    CHECK(eventually([&] { return freed == 3; }));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: an allocator of a process that shares nothing asks in vain, and starts nothing") {
  Process<std::string> process(
      {.name = "asker"}, +[]() -> std::string {
        if (DeviceIpc::give_back_for_allocator()) return "memory";
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
          std::ifstream file(task.path() / "comm");
          if (std::string name; std::getline(file, name) && name == "shoal-device") return name;
        }
        return "";
      });
  process.start();
  CHECK(process.result() == "");
}

TEST_CASE("device ipc: an allocator that is out of memory gets what only this process holds before it says so") {
  using On = OnHostDouble;
  {
    REQUIRE(is_called_before_out_of_memory());
    constexpr std::int64_t kBytes = 16 << 20;
    host_double::limit_memory(host_double::bytes_of_allocations() + 4 * kBytes);
    Queue<at::Tensor> queue(1);
    for (int i = 0; i < 40; ++i) {  // each is an export until somebody looks
      queue.put(at::empty({kBytes}, on<On>().dtype(at::kByte)));
      (void)queue.get();
    }
    std::vector<at::Tensor> kept;
    CHECK_THROWS_WITH(([&] {
                        for (int i = 0; i < 5; ++i) kept.push_back(at::empty({kBytes}, on<On>().dtype(at::kByte)));
                      }()),
                      ContainsSubstring("out of memory"));
    host_double::limit_memory(~std::size_t{0});
  }
  CHECK(nothing_left<On>());
}

// Nothing but what others give back makes room for the next one: each is more than half of the device. Who has let go of one
// answers at once, and gives its memory back a look of its collector's later.
DEVICE_TEST_CASE("a device is filled again and again with tensors that others had and let go of") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    constexpr int kRounds = 4;
    On::empty_cache();
    const std::int64_t bytes = std::int64_t(double(room<On>()) * 0.7);
    CAPTURE(bytes);
    Queue<at::Tensor> tensors(1);
    Queue<bool> answers(1);
    Process<void> other({.name = "looker"}, look, tensors, answers, kRounds);
    other.start();
    for (int i = 0; i < kRounds; ++i) {
      at::Tensor tensor = at::empty({bytes}, on<On>().dtype(at::kByte));
      for (const at::Tensor& end : ends(tensor)) end.copy_(at::full({end.size(0)}, i, at::kByte));
      tensors.put(tensor);
      tensor = at::Tensor();
      CHECK(answers.get(std::chrono::seconds(60)));
    }
    other.join();
    host_double::limit_memory(~std::size_t{0});
  }
  CHECK(nothing_left<On>());
}

// Who goes on holding what it was sent is waited for once.
TEST_CASE("device ipc: an allocator waits for what others hold once, and then says that memory is out") {
  using On = OnHostDouble;
  {
    const std::int64_t bytes = std::int64_t(double(room<On>()) * 0.7);
    const auto make = [&] { return at::empty({bytes}, on<On>().dtype(at::kByte)); };
    Queue<at::Tensor> tensors(1);
    tensors.put(make());
    CHECK(DeviceIpc::current().exports().others_have_much());
    CHECK_THROWS_WITH(make(), ContainsSubstring("out of memory"));
    // It has waited; not again, however often it asks.
    CHECK_FALSE(DeviceIpc::current().exports().others_have_much());
    CHECK_THROWS_WITH(make(), ContainsSubstring("out of memory"));
    // What is sent anew is waited for anew.
    {
      const at::Tensor back = tensors.get();
      tensors.put(back);
      CHECK_FALSE(DeviceIpc::current().exports().others_have_much());  // it is here, too
    }
    CHECK(DeviceIpc::current().exports().others_have_much());
    tensors.get();
    CHECK(eventually([&] { return DeviceIpc::give_back_for_allocator() || device_ipc_statistics().exports == 0; }));
    host_double::limit_memory(~std::size_t{0});
  }
  CHECK(nothing_left<On>());
}
