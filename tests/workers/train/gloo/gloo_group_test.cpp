// Messages between hosts whose connection ends: who waits is told, also in the middle of one.
#include <shoal/internal/workers/train/gloo/gloo_group.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;
using namespace std::chrono_literals;

namespace gloo_group_test {

namespace {

/// Two members in this process, connected by the loopback.
struct Pair {
  Pair() {
    const std::vector<std::string> addresses{"127.0.0.1", "127.0.0.1"};
    auto connect = [&](int index) {
      return std::make_unique<GlooGroup>(*store, 0, index, addresses, Deadline::after(30s), 30s);
    };
    auto second = std::async(std::launch::async, connect, 1);
    a = connect(0);
    b = second.get();
  }
  c10::intrusive_ptr<c10d::HashStore> store = c10::make_intrusive<c10d::HashStore>();
  std::unique_ptr<GlooGroup> a, b;
};

/// Nothing if the message came.
std::optional<GlooFailure::Why> why_it_failed(GlooGroup& group, const GlooGroup::Pending& message) {
  try {
    group.wait(message, Deadline::after(10min));
  } catch (const GlooFailure& failure) {
    return failure.why();
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("gloo group: who waits for the rest of a message is told that it does not come") {
  Pair pair;
  std::vector<char> sent(256 << 20, 1), got(sent.size(), 0);
  const auto receive = pair.a->receive(1, got.data(), got.size(), 7);
  const auto send = pair.b->send(0, sent.data(), sent.size(), 7);
  auto waiting = std::async(std::launch::async, [&] { return why_it_failed(*pair.a, receive); });
  // relaxed: Gloo's thread writes it, and nothing else is read by it.
  while (std::atomic_ref(got[0]).load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  pair.b->abort();
  pair.a->settle();  // Gloo has given the connection up, and forgotten who waits
  CHECK(std::atomic_ref(got.back()).load(std::memory_order_relaxed) == 0);  // relaxed: as above
  pair.a->lose(1);
  CHECK(waiting.get() == GlooFailure::ended);
  CHECK(why_it_failed(*pair.b, send) == GlooFailure::ended);
}

TEST_CASE("gloo group: what has come can be waited for after its sender is lost") {
  Pair pair;
  const char sent = 3;
  char got = 0, never = 0;
  const auto receive = pair.a->receive(1, &got, 1, 7), other = pair.a->receive(1, &never, 1, 8);
  const auto send = pair.b->send(0, &sent, 1, 7);
  pair.b->wait(send, Deadline::after(1min));
  // relaxed: Gloo's thread writes it, and nothing else is read by it.
  while (std::atomic_ref(got).load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  pair.b->abort();
  pair.b.reset();
  pair.a->settle();
  pair.a->lose(1);
  pair.a->wait(receive, Deadline::after(1min));
  CHECK(got == 3);
  CHECK(why_it_failed(*pair.a, other) == GlooFailure::ended);
}

TEST_CASE("gloo group: abort wakes whoever waits, and whoever comes later") {
  Pair pair;
  char never = 0, later = 0;
  const auto receive = pair.a->receive(1, &never, 1, 7), second = pair.a->receive(1, &later, 1, 8);
  auto waiting = std::async(std::launch::async, [&] { return why_it_failed(*pair.a, receive); });
  pair.a->abort();
  CHECK(waiting.get() == GlooFailure::ended);
  CHECK(why_it_failed(*pair.a, second) == GlooFailure::ended);
  pair.a->settle();
}

}  // namespace gloo_group_test
