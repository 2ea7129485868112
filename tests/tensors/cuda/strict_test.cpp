// Rules of a device that are easily broken by code that runs well without one: the host double keeps them, too.
#include <ATen/ATen.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/host_double/captures.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;
using On = OnHostDouble;
using host_double::CaptureMode;

namespace {

using Words = std::array<std::uint64_t, 8>;  // a handle, as a message

/// Two pages of the host, registered one by one.
class TwoPages {
 public:
  TwoPages() : start_(::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(start_ != MAP_FAILED);
    for (std::size_t page : {0, 1}) device_memory(On::kType).register_host(at(page), kPage, 0);
  }
  TwoPages(const TwoPages&) = delete;
  ~TwoPages() {
    for (std::size_t page : {0, 1}) device_memory(On::kType).unregister_host(at(page), 0);
    ::munmap(start_, 2 * kPage);
  }
  at::Tensor whole() const { return at::from_blob(start_, {2 * kPage}, at::kByte); }
  static constexpr std::int64_t kPage = 4096;

 private:
  std::byte* at(std::size_t page) const { return static_cast<std::byte*>(start_) + page * kPage; }
  void* start_;
};

/// Work for the current stream of device 0 that takes a moment.
void queue_some_work(std::atomic<bool>& done) {
  done = false;
  host_double::enqueue(0, [&done] {
    const auto begun = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(20)) continue;
    done = true;
  });
}

/// Whether what this thread does in the mode breaks a capture.
template <class Act>
bool breaks(const host_double::Capture& capture, CaptureMode mode, Act act) {
  const CaptureMode before = host_double::exchange_capture_mode(mode);
  bool thrown = false;
  try {
    act();
  } catch (const c10::Error&) {
    thrown = true;
  }
  host_double::exchange_capture_mode(before);
  CHECK(capture.is_broken() == thrown);
  return thrown;
}

}  // namespace

TEST_CASE("host double: closing, unmapping and unregistering wait for what is queued on the device") {
  {
    DeviceMemory& memory = device_memory(On::kType);
    std::atomic<bool> done;
    {
      const TwoPages pages;
      queue_some_work(done);
    }
    CHECK(done);
    Queue<Words> handles(1);
    Event closed;
    Process<void> owner(
        {.name = "owner"},
        +[](Queue<Words> handles, Event closed) {
          DeviceMemory& memory = device_memory(On::kType);
          const at::Tensor tensor = at::ones({4}).to(on<On>().device());
          (void)tensor.cpu();  // so that it is there
          Words words;
          std::memcpy(words.data(), memory.handle_of(memory.base_of(tensor.data_ptr(), 0), 0).bytes.data(),
                      sizeof words);
          handles.put(words);
          closed.wait();
        },
        handles, closed);
    owner.start();
    const Words words = handles.get();
    MemoryHandle handle;
    std::memcpy(handle.bytes.data(), words.data(), sizeof words);
    std::byte* opened = memory.open(handle, 1, 0);
    CHECK(memory.open(handle, 1, 0) == opened);  // counted: to be closed as often
    memory.close(opened, 0);
    CHECK(reinterpret_cast<const float*>(opened)[3] == 1);
    queue_some_work(done);
    memory.close(opened, 0);
    CHECK(done);
    CHECK(host_double::counts().open == 0);
    closed.set();
    owner.join();
    const Fd piece(::memfd_create("piece", MFD_CLOEXEC));
    REQUIRE(::ftruncate(piece.get(), TwoPages::kPage) == 0);
    const DeviceMemory::Piece given{piece.get(), TwoPages::kPage};
    std::byte* mapped = memory.map({&given, 1}, 0);
    queue_some_work(done);
    memory.unmap(mapped, TwoPages::kPage, 0);
    CHECK(done);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("host double: a copy from or to memory that lies across two registrations is refused") {
  {
    const TwoPages pages;
    const at::Tensor whole = pages.whole().fill_(3);
    const at::Tensor first = whole.slice(0, 0, TwoPages::kPage);
    const at::Tensor copy = first.to(on<On>().device(), /*non_blocking=*/true);
    CHECK(copy.cpu().equal(first));
    CHECK_THROWS_WITH(whole.to(on<On>().device(), /*non_blocking=*/true), ContainsSubstring("invalid argument"));
    CHECK_THROWS_WITH(whole.slice(0, 4000, 4200).to(on<On>().device()), ContainsSubstring("invalid argument"));
    at::Tensor across = whole.slice(0, 1, 1 + TwoPages::kPage);
    CHECK_THROWS_WITH(across.copy_(copy), ContainsSubstring("invalid argument"));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("host double: a copy to the host that shall not wait has not happened when it returns") {
  {
    const at::Tensor tensor = at::ones({4}).to(on<On>().device());
    at::Tensor copy = at::zeros({4});
    auto gate = On::close_gate();
    copy.copy_(tensor, /*non_blocking=*/true);
    CHECK(copy.equal(at::zeros({4})));
    gate.reset();
    c10::impl::VirtualGuardImpl(On::kType).synchronizeStream(c10::Stream(c10::Stream::DEFAULT, tensor.device()));
    CHECK(copy.equal(at::ones({4})));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("host double: the default streams of all devices have one handle, null; a stream is no other device's") {
  DeviceMemory& memory = device_memory(On::kType);
  const c10::impl::VirtualGuardImpl guard(On::kType);
  for (int device : {0, 1}) {
    const c10::Stream stream(c10::Stream::DEFAULT, on<On>(device).device());
    CHECK(guard.getStreamNativeHandle(stream) == nullptr);
    const host_double::Capture capture(stream);
    CHECK(memory.is_captured(nullptr, device));
    CHECK_FALSE(memory.is_captured(nullptr, 1 - device));
  }
  CHECK_THROWS_AS(memory.stream_number(guard.getStreamNativeHandle(new_stream<On>(1)), 0), DeviceError);
}

TEST_CASE("host double: a kernel that is launched for the first time waits for the device, and no other time") {
  Process<std::string> process(
      {.name = "launcher"}, +[]() -> std::string {
        at::Tensor tensor = at::empty({4}, on<On>());
        std::atomic<bool> done;
        queue_some_work(done);
        tensor.fill_(1);
        if (!done) return "the first one";
        auto gate = std::make_unique<host_double::Gate>(0);
        tensor.fill_(2);
        gate.reset();
        return tensor.cpu().equal(at::full({4}, 2.0f)) ? "" : "another value";
      });
  process.start();
  CHECK(process.result() == "");
}

TEST_CASE("host double: there are so many events, and no more") {
  std::vector<std::unique_ptr<c10::Event>> events;
  const c10::Stream stream = new_stream<On>();
  const auto make_one = [&] {
    events.push_back(std::make_unique<c10::Event>(On::kType));
    events.back()->record(stream);
  };
  for (int i = 0; i < host_double::kMostEvents; ++i) make_one();
  CHECK(host_double::counts().events == host_double::kMostEvents);
  CHECK_THROWS_AS(make_one(), c10::Error);
  events.clear();
  CHECK(host_double::counts().events == 0);
}

TEST_CASE("host double: memory is unregistered while a stream of another device still has a word in it: that aborts") {
  Process<void> process(
      {.name = "unregisterer"}, +[] {
        DeviceMemory& memory = device_memory(On::kType);
        (void)On::devices();
        alignas(4096) static std::uint64_t words[512];
        memory.register_host(reinterpret_cast<std::byte*>(words), sizeof words, 0);
        memory.wait_word(c10::impl::VirtualGuardImpl(On::kType).getStreamNativeHandle(new_stream<On>(1)), words, 1, 1);
        memory.unregister_host(reinterpret_cast<std::byte*>(words), 0);
      });
  process.start();
  process.join();
  CHECK(process.exitcode() == -SIGABRT);
}

TEST_CASE("host double: a device has 32 streams beside its default one, and begins again") {
  const c10::Stream first = new_stream<On>();
  for (int i = 1; i < host_double::kPoolStreams; ++i) CHECK(new_stream<On>() != first);
  CHECK(new_stream<On>() == first);
  CHECK(new_stream<On>(1) != first);
}

TEST_CASE("host double: memory is given out again at once, for the same stream and no other") {
  {
    at::Tensor one = at::ones({100}, on<On>());
    const void* where = one.data_ptr();
    auto gate = On::close_gate();
    one = at::Tensor();
    {
      const OnStream other(new_stream<On>());
      CHECK(at::empty({100}, on<On>()).data_ptr() != where);
    }
    const at::Tensor again = at::ones({100}, on<On>());
    CHECK(again.data_ptr() == where);
    gate.reset();
    CHECK(again.cpu().equal(at::ones({100})));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("host double: to ask about an event, or to wait, breaks captures as the modes of capture and thread say") {
  const c10::Stream stream = new_stream<On>(), other = new_stream<On>();
  c10::Event event(On::kType);
  event.record(other);
  other.synchronize();  // else a question below may come before the device has reached the event
  const auto any_thread = CaptureMode::kAnyThread, this_thread = CaptureMode::kThisThread, never = CaptureMode::kNever;
  struct Case {
    CaptureMode capture, thread;
    bool own_breaks, other_breaks;
  };
  const std::function<void()> acts[] = {[&] { (void)event.query(); }, [&] { event.synchronize(); },
                                        [&] { other.synchronize(); }};
  const auto& act = acts[GENERATE(0, 1, 2)];
  for (const auto& [mode, thread_mode, own_breaks, other_breaks] :
       {Case{any_thread, any_thread, true, true}, Case{any_thread, this_thread, true, false},
        Case{any_thread, never, false, false}, Case{this_thread, any_thread, true, false},
        Case{this_thread, this_thread, true, false}, Case{never, any_thread, false, false}}) {
    CAPTURE(int(mode), int(thread_mode));
    {
      const host_double::Capture capture(stream, mode);
      CHECK(breaks(capture, thread_mode, act) == own_breaks);
    }
    const host_double::Capture capture(stream, mode);
    bool other_broke = false;
    std::thread([&, thread_mode = thread_mode] { other_broke = breaks(capture, thread_mode, act); }).join();
    CHECK(other_broke == other_breaks);
  }
  {
    const host_double::Capture capture(stream, never);
    CHECK(other.query());
    CHECK_FALSE(capture.is_broken());
    CHECK_THROWS_AS(stream.query(), c10::Error);
    CHECK(capture.is_broken());
  }
  CHECK(stream.query());
}

TEST_CASE("host double: an event is recorded on the streams of one device") {
  const c10::impl::VirtualGuardImpl guard(On::kType);
  void* event = nullptr;
  guard.record(&event, new_stream<On>(0), 0, c10::EventFlag::PYTORCH_DEFAULT);
  CHECK_THROWS_AS(guard.record(&event, new_stream<On>(1), 1, c10::EventFlag::PYTORCH_DEFAULT), c10::Error);
  CHECK_THROWS_AS(guard.record(&event, new_stream<On>(0), 1, c10::EventFlag::PYTORCH_DEFAULT), c10::Error);
  guard.block(event, new_stream<On>(1));
  guard.destroyEvent(event, 0);
}

TEST_CASE("host double: before it is initialized, and after an error has stuck, nothing works") {
  Process<std::string> process(
      {.name = "breaker"}, +[]() -> std::string {
        const auto refused = [](auto&& act) {
          try {
            act();
          } catch (const c10::Error&) {
            return true;
          }
          return false;
        };
        if (!refused([] { (void)c10::GetAllocator(On::kType)->allocate(16); })) return "memory before";
        if (!refused([] { const host_double::Gate gate(0); })) return "a gate before";
        if (!refused([] { (void)host_double::bytes_in_storages(); })) return "bytes before";
        at::Tensor tensor = at::ones({4}, on<On>());
        host_double::break_device();
        if (!refused([&] { tensor.add_(1); })) return "a kernel";
        if (!refused([&] { (void)tensor.cpu(); })) return "a copy";
        if (!refused([] { (void)at::empty({4}, on<On>()); })) return "memory";
        const c10::Stream stream(c10::Stream::DEFAULT, tensor.device());
        if (!refused([&] { (void)stream.query(); })) return "a stream";
        c10::Event event(On::kType);
        if (!refused([&] { event.record(stream); })) return "an event";
        // The driver's own words, not libtorch's.
        DeviceMemory& memory = device_memory(On::kType);
        std::byte page[1];
        const auto refused_by_driver = [](auto&& act) {
          try {
            act();
          } catch (const DeviceError&) {
            return true;
          }
          return false;
        };
        if (!refused_by_driver([&] { (void)memory.base_of(tensor.data_ptr(), 0); })) return "a base";
        if (!refused_by_driver([&] { (void)memory.open({}, 1, 0); })) return "an opening";
        if (!refused_by_driver([&] { memory.register_host(page, 4096, 0); })) return "a registration";
        if (!refused_by_driver([&] { (void)memory.is_captured(nullptr, 0); })) return "a capture";
        return "";
      });
  process.start();
  CHECK(process.result() == "");
}

TEST_CASE("host double: an event that is recorded or destroyed makes a context on the thread's own device") {
  Process<std::vector<int>> process(
      {.name = "user of device 1"}, +[] {
        const auto options = on<On>(1);
        const at::Tensor tensor = at::ones({4}, options);
        std::vector<int> seen{int(host_double::contexts().size())};
        const c10::Stream stream(c10::Stream::DEFAULT, options.device());
        {
          const c10::DeviceGuard guard(options.device());
          c10::Event event(On::kType);
          event.record(stream);
        }
        seen.push_back(int(host_double::contexts().size()));
        c10::Event event(On::kType);
        event.record(stream);
        seen.push_back(int(host_double::contexts().size()));
        return seen;
      });
  process.start();
  CHECK(process.result() == std::vector<int>{1, 1, 2});
}

TEST_CASE("host double: when as many streams wait for words as a device has queues, its other streams stand still") {
  {
    DeviceMemory& memory = device_memory(On::kType);
    const c10::impl::VirtualGuardImpl guard(On::kType);
    alignas(4096) static std::uint64_t words[512];
    memory.register_host(reinterpret_cast<std::byte*>(words), sizeof words, 0);
    const at::Tensor tensor = at::zeros({4}, on<On>());
    (void)tensor.cpu();
    std::vector<c10::Stream> waiting;
    const auto wait_on_one_more = [&] {
      waiting.push_back(new_stream<On>());
      memory.wait_word(guard.getStreamNativeHandle(waiting.back()), words, 1, 0);
    };
    for (int i = 1; i < host_double::kQueues; ++i) wait_on_one_more();
    tensor.fill_(1);
    CHECK(tensor.cpu().equal(at::ones({4})));
    wait_on_one_more();
    tensor.fill_(2);
    const c10::Stream stream = guard.getStream(tensor.device());
    On::settle(stream);
    CHECK_FALSE(stream.query());
    std::atomic_ref(words[0]).store(1);  // by the host: the waits end
    CHECK(tensor.cpu().equal(at::full({4}, 2.0f)));
    for (const c10::Stream& each : waiting) each.synchronize();
    memory.unregister_host(reinterpret_cast<std::byte*>(words), 0);
  }
  CHECK(nothing_left<On>());
}
