// The words by which a sender's stream tells receivers how far it has come: how many, and what becomes of them when
// somebody dies or cannot use them.
#include <ATen/ATen.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/internal/tensors/cuda/holders.h>
#include <shoal/internal/tensors/cuda/make_layout.h>
#include <shoal/internal/tensors/cuda/word_watch.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ipc_collect.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Sends tensors whose values come behind a gate that never opens.
template <class On>
void send_behind_a_gate(Queue<at::Tensor> out, int count) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(at::zeros({10}, at::kFloat).to(on<On>().device()));
  auto gate = On::close_gate();
  for (at::Tensor& each : tensors) {
    each.fill_(1);
    out.put(each);
  }
  ::pause();
}

/// Receives on as many streams as there are messages, and tells how many streams wait. Returns what it has got.
template <class On>
float receive_on_many(Queue<at::Tensor> in, Queue<int> waiting, int count) {
  On::load_kernels();
  std::vector<c10::Stream> streams;
  std::vector<at::Tensor> copies;
  for (int i = 0; i < count; ++i) {
    streams.push_back(new_stream<On>());
    copies.push_back(at::zeros({10}, at::kFloat).to(on<On>().device()));
  }
  for (int i = 0; i < count; ++i) {
    const OnStream here(streams[std::size_t(i)]);
    at::Tensor received = in.get();
    copies[std::size_t(i)].copy_(received);
    waiting.put(int(DeviceIpc::current().received_words().waits()));
  }
  float sum = 0;
  for (int i = 0; i < count; ++i) {
    const OnStream here(streams[std::size_t(i)]);
    sum += copies[std::size_t(i)].cpu().sum().template item<float>();
  }
  return sum;
}

bool is_idle(c10::Stream stream) { return c10::impl::VirtualGuardImpl(stream.device_type()).queryStream(stream); }

/// Receives on a stream of device 1 that stands before a gate, so that it has not come to the wait for the sender.
at::Tensor receive_behind_a_gate(Queue<at::Tensor> in, c10::Stream stream, std::shared_ptr<void>& gate) {
  const OnStream here(stream);
  gate = OnHostDouble::close_gate(1);
  return in.get();
}

/// The double aborts if a page is unregistered in which a wait is queued.
bool nothing_is_unregistered_before(c10::Stream stream, std::shared_ptr<void>& gate) {
  if (!eventually([] { return DeviceIpc::current().received_words().waits() == 0; })) return false;
  for (int i = 0; i < 3; ++i) ipc_collect();
  if (is_idle(stream)) return false;
  gate.reset();
  stream.synchronize();
  return true;
}

/// A page of words in which the producer has queued values of the first one, and none has been written.
Hold make_page(std::uint32_t producer) {
  Hold block = allocate_shared(sizeof(DeviceWordsLayout));
  auto* page = make_layout<DeviceWordsLayout>(block.data(), c10::Device(OnHostDouble::kType, 0));
  page->producer = producer;
  page->queued[0] = 2;
  return block;
}

/// A message of a page of words, as another process may have damaged it.
void await_damaged(const Hold& page, SentWord word) {
  Decoder::Handles holds;
  holds.push_back(page.share());
  word.page = 0;
  DeviceIpc::current().received_words().wait(holds[0], word, c10::Device(OnHostDouble::kType, 0));
}

}  // namespace

DEVICE_TEST_CASE("a stream has one word, in one page, however many messages it sends and nobody receives") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    constexpr int kMessages = 800;  // a stream of CUDA takes about 1,000 things to do before it makes the caller wait
    Queue<at::Tensor> queue(kMessages);
    std::vector<c10::Stream> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(new_stream<On>());
    at::Tensor tensor = at::zeros({kMessages}, at::kFloat).to(on<On>().device());
    {
      const OnStream here(streams[0]);
      auto gate = On::close_gate();
      for (int i = 0; i < kMessages; ++i) {
        const OnStream stream(streams[std::size_t(i) % streams.size()]);
        at::Tensor slice = tensor.slice(0, i, i + 1);
        slice.fill_(double(i));
        queue.put(slice);
      }
      CHECK(device_ipc_statistics().words >= 1);
      CHECK(device_ipc_statistics().words <= streams.size());
    }
    CHECK(device_ipc_statistics().word_pages == 1);
    const OnStream stream(new_stream<On>());
    for (int i = 0; i < kMessages; ++i) CHECK(queue.get().cpu().template item<float>() == float(i));
    CHECK(device_ipc_statistics().words == 0);
    ipc_collect();
    CHECK(device_ipc_statistics().word_pages == 1);  // used since the last time
    ipc_collect();
    CHECK(device_ipc_statistics().word_pages == 0);
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a receiver's stream goes on when the sender was killed before its own came so far") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    On::load_kernels();
    constexpr int kMessages = 3;
    Queue<at::Tensor> queue(kMessages);
    Process<void> process({.name = "sender"}, send_behind_a_gate<On>, queue, kMessages);
    process.start();
    std::vector<c10::Stream> streams;
    std::vector<at::Tensor> received;
    for (int i = 0; i < kMessages; ++i) {
      streams.push_back(new_stream<On>());
      const OnStream here(streams.back());
      received.push_back(queue.get());
      received.back().add_(1);
      On::settle(streams.back());
      CHECK_FALSE(is_idle(streams.back()));
    }
    CHECK(DeviceIpc::current().received_words().waits() == kMessages);
    ::kill(process.pid(), SIGKILL);
    for (const c10::Stream& stream : streams) c10::impl::VirtualGuardImpl(On::kType).synchronizeStream(stream);
    process.join();
    CHECK_THROWS_AS(check_owner_alive(received[0]), PeerDied);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a receiver's stream goes on whatever the device of a killed sender still does with its words") {
  using On = OnHostDouble;
  using host_double::AfterDeath;
  const auto what = GENERATE(AfterDeath::kNothing, AfterDeath::kWritesAll, AfterDeath::kWritesLate);
  CAPTURE(int(what));
  {
    On::load_kernels();
    Queue<at::Tensor> queue(1);
    Process<void> process({.name = "sender"}, send_behind_a_gate<On>, queue, 1);
    process.start();
    host_double::set_after_death(process.pid(), what);
    const c10::Stream stream = new_stream<On>();
    const OnStream here(stream);
    at::Tensor received = queue.get();
    received.add_(1);
    CHECK_FALSE(is_idle(stream));
    ::kill(process.pid(), SIGKILL);
    process.join();
    CHECK(eventually([&] { return is_idle(stream); }));
    CHECK(eventually([] { return DeviceIpc::current().received_words().waits() == 0; }));
    host_double::set_after_death(0, AfterDeath::kNothing);
    received.reset();
    CHECK(eventually([] { return device_ipc_statistics().word_pages == 0; }));  // by the collector's thread
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: where a process has one queue on a device, threads wait themselves, and other streams go on") {
  using On = OnHostDouble;
  {
    Queue<at::Tensor> queue(1);
    Queue<bool> goes_on(1);
    at::Tensor tensor = at::zeros({10}, at::kFloat).to(on<On>().device());
    Process<float> process(
        {.name = "receiver"},
        +[](Queue<at::Tensor> in, Queue<bool> goes_on) {
          host_double::set_queues(1);
          On::load_kernels();
          at::Tensor other = at::zeros({10}, at::kFloat).to(on<On>().device());
          const c10::Stream stream = c10::impl::VirtualGuardImpl(On::kType).getStream(other.device());
          float sum = 0;
          std::thread receives([&] {
            const OnStream here(new_stream<On>());
            sum = in.get().cpu().sum().item<float>();
          });
          (void)eventually([&] { return in.empty(); });
          (void)eventually([] { return device_ipc_statistics().imports == 1; });
          other.add_(1);
          goes_on.put(eventually([&] { return is_idle(stream); }));
          receives.join();
          return host_double::words_awaited() == 0 ? sum : -1;
        },
        queue, goes_on);
    process.start();
    {
      auto gate = On::close_gate();
      tensor.fill_(2);
      queue.put(tensor);
      CHECK(goes_on.get());  // the sender waits for that with what the receiver is to get
    }
    CHECK(process.result() == 20);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a thread that waits itself goes on when the sender was killed, too") {
  using On = OnHostDouble;
  {
    Queue<at::Tensor> queue(1);
    Process<void> process({.name = "sender"}, send_behind_a_gate<On>, queue, 1);
    process.start();
    host_double::allow_words(false);
    const int before = host_double::words_awaited();
    std::thread killer([&] {
      (void)eventually([] { return device_ipc_statistics().imports == 1; });  // it is about to wait, or does so
      ::kill(process.pid(), SIGKILL);
    });
    const at::Tensor received = queue.get();
    CHECK(host_double::words_awaited() == before);
    killer.join();
    process.join();
    host_double::allow_words(true);
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("few streams wait at a time: a thread that receives on one more waits itself") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    constexpr int kMessages = int(DeviceMemory::kMostWaitingStreams) + 2;
    Queue<at::Tensor> queue(kMessages);
    Queue<int> waiting(kMessages);
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < kMessages; ++i) tensors.push_back(at::zeros({10}, at::kFloat).to(on<On>().device()));
    Process<float> process({.name = "receiver"}, receive_on_many<On>, queue, waiting, kMessages);
    process.start();
    auto gate = On::close_gate();
    for (at::Tensor& each : tensors) {
      each.fill_(3);
      queue.put(each);
    }
    for (int i = 1; i <= int(DeviceMemory::kMostWaitingStreams); ++i) CHECK(waiting.get() == i);
    CHECK(eventually([&] { return queue.qsize() == 1; }));  // the next one is in the thread's hands
    CHECK(waiting.empty());
    gate.reset();
    CHECK(process.result() == 30.0f * kMessages);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: what a sender's stream has done already is awaited by nobody") {
  using On = OnHostDouble;
  {
    const int before = host_double::words_awaited();
    const at::Tensor tensor = at::full({10}, 2.0f).to(on<On>().device());
    Queue<at::Tensor> queue(1);
    queue.put(tensor);
    On::settle(c10::impl::VirtualGuardImpl(On::kType).getStream(tensor.device()));
    const OnStream other(new_stream<On>());
    CHECK(queue.get().cpu().equal(at::full({10}, 2.0f)));
    CHECK(host_double::words_awaited() == before);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a device whose streams write no words is synchronized before a tensor is sent") {
  using On = OnHostDouble;
  {
    const at::Tensor tensor = at::zeros({1'000'000}, at::kFloat).to(on<On>().device());
    Queue<at::Tensor> queue(1);
    const c10::Stream stream = new_stream<On>();
    const OnStream here(stream);
    host_double::allow_words(false);
    for (int i = 0; i < 20; ++i) tensor.add_(1);
    queue.put(tensor);
    CHECK(is_idle(stream));
    CHECK(device_ipc_statistics().word_pages == 0);
    host_double::allow_words(true);
    CHECK(queue.get().cpu().equal(at::full({1'000'000}, 20.0f)));
  }
  CHECK(nothing_left<On>());
}

DEVICE_TEST_CASE("a page that its maker has given up is still there for a message on its way") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    Queue<at::Tensor> queue(1);
    const at::Tensor tensor = at::full({10}, 2.0f).to(on<On>().device());
    queue.put(tensor);
    CHECK(eventually([] { return device_ipc_statistics().words == 0; }));
    ipc_collect();
    ipc_collect();
    CHECK(device_ipc_statistics().word_pages == 0);
    const OnStream other(new_stream<On>());
    CHECK(queue.get().cpu().equal(at::full({10}, 2.0f)));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: an own page stays registered while a stream of any device has still to come to its wait") {
  using On = OnHostDouble;
  {
    Queue<at::Tensor> queue(1);
    // The registration is kept by device 0's context: nobody waits for device 1 when it ends.
    queue.put(at::ones({10}).to(on<On>(0).device()));
    (void)queue.get().cpu();
    const at::Tensor tensor = at::zeros({10}).to(on<On>(1).device());
    const c10::Stream sender = new_stream<On>(1), receiver = new_stream<On>(1);
    at::Tensor received;
    std::shared_ptr<void> late;
    {
      const OnStream here(sender);
      auto gate = On::close_gate(1);
      queue.put(tensor);
      received = receive_behind_a_gate(queue, receiver, late);
    }
    sender.synchronize();
    CHECK(nothing_is_unregistered_before(receiver, late));
  }
  CHECK(nothing_left<On>());
}

TEST_CASE(
    "device ipc: another one's page stays registered while a stream of any device has still to come to its wait") {
  using On = OnHostDouble;
  {
    Queue<at::Tensor> queue(1);
    Event received_first, received_second, done;
    Process<void> process(
        {.name = "sender"},
        +[](Queue<at::Tensor> out, Event received_first, Event received_second, Event done) {
          std::vector<at::Tensor> tensors;
          for (int device : {0, 1}) {
            tensors.push_back(at::zeros({10}).to(on<On>(device).device()));
            auto gate = On::close_gate(device);
            out.put(tensors.back());
            (device == 0 ? received_first : received_second).wait();
          }
          done.wait();
          tensors.clear();
          wait_until_released(std::chrono::seconds(10));
        },
        queue, received_first, received_second, done);
    process.start();
    at::Tensor first = queue.get();  // it is not there yet: device 0's context keeps the registration
    received_first.set();
    CHECK(first.cpu().equal(at::zeros({10})));
    const c10::Stream receiver = new_stream<On>(1);
    std::shared_ptr<void> late;
    at::Tensor received = receive_behind_a_gate(queue, receiver, late);
    CHECK(DeviceIpc::current().received_words().waits() == 1);
    received_second.set();
    CHECK(nothing_is_unregistered_before(receiver, late));
    first = received = at::Tensor();
    CHECK(eventually([] {  // though the sender lives
      ipc_collect();
      return device_ipc_statistics().word_pages == 0;
    }));
    done.set();
    process.result();
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a page that is just being unregistered is not used again: the thread waits itself") {
  using On = OnHostDouble;
  {
    Event done;
    Process<void> process({.name = "other"}, +[](Event done) { done.wait(); }, done);
    process.start();
    CHECK(eventually([&] { return bool(SessionCore::current().find(process.pid())); }));
    ReceivedWords& words = DeviceIpc::current().received_words();
    const c10::Device device = on<On>().device();
    const Hold page = make_page(SessionCore::current().find(process.pid()).word());
    const Word word{reinterpret_cast<DeviceWordsLayout*>(page.data()), 0};
    words.wait(page, {0, 0, 1}, device);
    word.raise(1);
    c10::impl::VirtualGuardImpl(On::kType).synchronizeStream(c10::Stream(c10::Stream::DEFAULT, device));
    const c10::Stream stream = new_stream<On>();
    std::shared_ptr<void> gate;
    {
      const OnStream here(new_stream<On>());
      gate = On::close_gate();
    }
    std::thread collects([&] {
      while (words.pages() != 0) words.collect(ReceivedWords::Which::kUnused);
    });
    CHECK(eventually([] { return host_double::waiting_for_device() == 1; }));
    const int before = host_double::words_awaited();
    std::atomic<bool> begun{false};
    std::thread receives([&] {
      const OnStream here(stream);
      begun = true;
      words.wait(page, {0, 0, 2}, device);
    });
    CHECK(eventually([&] { return begun.load(); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it has looked for the page, as a rule
    word.raise(2);
    receives.join();
    CHECK(host_double::words_awaited() == before);
    gate.reset();
    collects.join();
    done.set();
    process.result();
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: pages of living processes are bounded, the ones used longest ago go first") {
  using On = OnHostDouble;
  {
    Event done;
    Process<void> process({.name = "other"}, +[](Event done) { done.wait(); }, done);
    process.start();
    CHECK(eventually([&] { return bool(SessionCore::current().find(process.pid())); }));
    const std::uint32_t producer = SessionCore::current().find(process.pid()).word();
    constexpr std::size_t kMore = 6, kPages = ReceivedWords::kMostPages + kMore, kUsedAgain = 10;
    std::vector<Hold> pages;
    ReceivedWords& words = DeviceIpc::current().received_words();
    const c10::Device device = on<On>().device();
    for (std::size_t i = 0; i < kPages; ++i) {
      pages.push_back(make_page(producer));
      words.wait(pages.back(), {0, 0, 1}, device);
    }
    for (std::size_t i = 0; i < kUsedAgain; ++i) words.wait(pages[i], {0, 0, 2}, device);
    CHECK(words.pages() == kPages);
    words.collect(ReceivedWords::Which::kDead);
    CHECK(words.pages() == kPages);  // all are awaited
    for (const Hold& page : pages) Word{reinterpret_cast<DeviceWordsLayout*>(page.data()), 0}.raise(2);
    CHECK(eventually([&] {
      words.collect(ReceivedWords::Which::kDead);
      return words.pages() == ReceivedWords::kMostPages;
    }));
    for (std::size_t i = 0; i < kPages; ++i) {
      const bool is_given_up = i >= kUsedAgain && i < kUsedAgain + kMore;
      CHECK(is_only_hold(pages[i]) == is_given_up);
    }
    done.set();
    process.result();
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a word that a dead process's device never writes is raised, and again where it writes late") {
  static WordWatch& watch = *new WordWatch;  // its thread lasts as long as the process
  const auto page = std::make_shared<DeviceWordsLayout>();
  const Word word{page.get(), 3};
  const StreamName stream{c10::Device(OnHostDouble::kType, 0), 1};
  const ProcessTag dead(4000, 7);
  CHECK(watch.add(stream, word, 5, dead, page, 1) == WordWatch::Answer::kQueue);
  CHECK(eventually([&] { return word.has(5); }));
  bool raised_again = false;
  for (std::uint64_t value = 10; value < 200 && !raised_again; value += 10) {
    CHECK(eventually([&] { return watch.waits() == 0; }));
    CHECK(watch.add(stream, word, value, dead, page, 1) == WordWatch::Answer::kQueue);
    CHECK(eventually([&] { return word.has(value); }));
    page->reached[word.index] = value - 1;  // what it had queued before
    // Where this thread was too slow, the watch has looked for the last time before that.
    CHECK(eventually([&] { return watch.waits() == 0; }));
    raised_again = word.has(value);
  }
  CHECK(raised_again);
}

DEVICE_TEST_CASE("threads that send on one stream write its word in its order") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    constexpr int kThreads = 4, kEach = 100;
    On::load_kernels();
    Queue<at::Tensor> queue(kThreads * kEach);
    const c10::Stream stream = new_stream<On>();
    std::shared_ptr<void> gate;
    if constexpr (On::kIsDouble) {
      const OnStream here(stream);
      gate = On::close_gate();  // so that the double has all of the word's values, and compares them
    }
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        const OnStream here(stream);
        for (int i = 0; i < kEach; ++i) queue.put(at::full({1}, float(thread * kEach + i)).to(on<On>().device()));
      });
    if constexpr (On::kIsDouble) {  // a stream of CUDA's does not take so much behind a gate
      CHECK(eventually([&] { return queue.qsize() == kThreads * kEach; }));
      gate.reset();
    }
    const OnStream here(new_stream<On>());
    std::vector<bool> seen(kThreads * kEach);
    for (int i = 0; i < kThreads * kEach; ++i) seen.at(std::size_t(queue.get().cpu().template item<float>())) = true;
    for (std::thread& each : threads) each.join();
    CHECK(std::ranges::count(seen, true) == kThreads * kEach);
    CHECK(device_ipc_statistics().word_pages == 1);
    CHECK(device_ipc_statistics().words == 0);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: a word that cannot be is a DecodeError, and no stream waits for it") {
  using On = OnHostDouble;
  {
    const at::Tensor tensor = at::full({10}, 2.0f).to(on<On>().device());
    Encoder message;
    const SentWord word = DeviceIpc::current().sent_words().write(message, tensor.device());
    const Hold page = Hold::share_of(message.handles()[word.page].block);
    CHECK_NOTHROW(await_damaged(page, word));
    CHECK_THROWS_AS(await_damaged(page, {0, word.index, word.value + 1}), DecodeError);
    CHECK_THROWS_AS(await_damaged(page, {0, word.index + 1, 1}), DecodeError);
    CHECK_THROWS_AS(await_damaged(page, {0, DeviceWordsLayout::kWords, 0}), DecodeError);
    CHECK_THROWS_AS(await_damaged(allocate_shared(100), word), DecodeError);
    Hold other = allocate_shared(sizeof(DeviceWordsLayout));
    std::memset(other.data(), 0, other.size());
    CHECK_THROWS_AS(await_damaged(other, word), DecodeError);
  }
  CHECK(nothing_left<On>());
}

TEST_CASE("device ipc: whoever raises a dead process's word never lowers it") {
  auto page = std::make_unique<DeviceWordsLayout>();
  const Word word{page.get(), 7};
  word.raise(5);
  CHECK(word.has(5));
  CHECK_FALSE(word.has(6));
  word.raise(3);
  CHECK(word.has(5));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread)
    threads.emplace_back([&, thread] {
      for (std::uint64_t value = 10; value < 20'000; value += 3) word.raise(value + std::uint64_t(thread));
    });
  for (std::thread& each : threads) each.join();
  CHECK(word.has(20'001));
  CHECK_FALSE(word.has(20'003));
}
