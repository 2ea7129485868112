// The host double is as strict as what it stands for: otherwise the tests on it would prove nothing.
#include <ATen/ATen.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;
using On = OnHostDouble;

namespace {

using Words = std::array<std::uint64_t, 8>;  // a handle, as a message

template <class Handle>
Words to_words(const Handle& handle) {
  Words words;
  std::memcpy(words.data(), handle.bytes.data(), sizeof words);
  return words;
}

template <class Handle>
Handle from_words(const Words& words) {
  Handle handle;
  std::memcpy(handle.bytes.data(), words.data(), sizeof words);
  return handle;
}

/// Opens it and keeps it open until it is killed.
void open_and_stay(Words words, Queue<int> opened) {
  (void)device_memory(On::kType).open(from_words<MemoryHandle>(words), 1, 0);
  opened.put(1);
  ::pause();
}

}  // namespace

TEST_CASE("host double: an own handle cannot be opened, nor one of a process that died") {
  {
    DeviceMemory& memory = device_memory(On::kType);
    const at::Tensor tensor = at::ones({4}).to(on<On>().device());
    const auto base = memory.base_of(tensor.data_ptr(), 0);
    CHECK_THROWS_AS(memory.open(memory.handle_of(base, 0), 1, 0), DeviceError);
    CHECK_THROWS_AS(memory.open(MemoryHandle{}, 1, 0), DeviceError);
    Process<Words> process(
        {.name = "short-lived"}, +[] {
          DeviceMemory& memory = device_memory(On::kType);
          const at::Tensor tensor = at::ones({4}).to(on<On>().device());
          return to_words(memory.handle_of(memory.base_of(tensor.data_ptr(), 0), 0));
        });
    process.start();
    CHECK_THROWS_AS(memory.open(from_words<MemoryHandle>(process.result()), 1, 0), DeviceError);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("host double: freeing an allocation that another process has open aborts") {
  Queue<Words> handles(1);
  Queue<int> opened(1), may_free(1);
  Process<void> owner(
      {.name = "owner"},
      +[](Queue<Words> handles, Queue<int> may_free) {
        DeviceMemory& memory = device_memory(On::kType);
        {
          const at::Tensor tensor = at::ones({4}).to(on<On>().device());
          handles.put(to_words(memory.handle_of(memory.base_of(tensor.data_ptr(), 0), 0)));
          (void)may_free.get();
        }
        host_double::empty_cache();
      },
      handles, may_free);
  owner.start();
  Process<void> other({.name = "other"}, open_and_stay, handles.get(), opened);
  other.start();
  (void)opened.get();
  may_free.put(1);
  owner.join();
  CHECK(owner.exitcode() == -SIGABRT);
  other.kill();
  other.join();
}

TEST_CASE(
    "host double: a stream writes and awaits words of registered memory only, and never before its work is done") {
  DeviceMemory& memory = device_memory(On::kType);
  alignas(4096) static std::uint64_t words[512];
  c10::impl::VirtualGuardImpl guard(On::kType);
  const c10::Stream one = new_stream<On>(), two = new_stream<On>();
  auto handle = [&](c10::Stream stream) { return guard.getStreamNativeHandle(stream); };
  CHECK_THROWS_AS(memory.write_word(handle(one), words, 1, 0), DeviceError);
  (void)On::close_gate();  // its first launch waits for the whole device, and so for words that streams await
  memory.register_host(reinterpret_cast<std::byte*>(words), sizeof words, 0);
  CHECK(memory.stream_number(handle(one), 0) != memory.stream_number(handle(two), 0));
  memory.wait_word(handle(two), words, 7, 0);
  memory.write_word(handle(two), words + 1, 5, 0);
  {
    const OnStream here(one);
    auto gate = On::close_gate();
    memory.write_word(handle(one), words, 8, 0);
    CHECK_THROWS_AS(memory.write_word(handle(one), words, 8, 0),
                    DeviceError);  // values that are not there yet only grow
    CHECK_THROWS_AS(memory.write_word(handle(one), words, 7, 0), DeviceError);
    On::settle(one);
    On::settle(two);
    CHECK(std::atomic_ref(words[0]).load() == 0);
    CHECK(std::atomic_ref(words[1]).load() == 0);
  }
  guard.synchronizeStream(two);
  CHECK(std::atomic_ref(words[0]).load() == 8);
  CHECK(std::atomic_ref(words[1]).load() == 5);
  memory.unregister_host(reinterpret_cast<std::byte*>(words), 0);
  CHECK(nothing_left<On>());
}

TEST_CASE("host double: a stream's work waits behind its gate, and another stream does not") {
  {
    at::Tensor one = at::zeros({4}).to(on<On>().device()), two = at::zeros({4}).to(on<On>().device());
    (void)two.cpu();
    const c10::Stream other = new_stream<On>();
    auto gate = On::close_gate();
    one.fill_(1);
    {
      OnStream current(other);
      two.fill_(2);
      CHECK(two.cpu().equal(at::full({4}, 2.0f)));
      CHECK(one.cpu().equal(at::zeros({4})));  // read on a stream that nobody told to wait: the old values
    }
    gate.reset();
    CHECK(one.cpu().equal(at::ones({4})));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("host double: host memory is registered in whole pages, and no part of it twice") {
  DeviceMemory& memory = device_memory(On::kType);
  auto* pages = reinterpret_cast<std::byte*>(4096 * 1000);
  memory.register_host(pages, 8192, 0);
  CHECK_THROWS_AS(memory.register_host(pages + 4096, 8192, 0), DeviceError);
  CHECK_THROWS_AS(memory.register_host(pages + 8200, 4096, 0), DeviceError);
  memory.unregister_host(pages, 0);
  CHECK(host_double::counts().registered_bytes == 0);
}
