// A process that is killed between clearing the sleepers' bit and waking them: whoever reclaims it wakes them.
#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/ipc/session.h>
#include <sys/syscall.h>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Sleeps on the word until it is woken, and for no other reason within this test.
class Sleeper {
 public:
  explicit Sleeper(EventWord& word)
      : thread_([&word, this] {
          const std::uint32_t prepared = word.prepare();
          thread_id_ = ::syscall(SYS_gettid);
          word.sleep(prepared, std::chrono::hours(1));
        }) {}
  void until_asleep() {
    until([&] {
      std::ifstream file("/proc/self/task/" + std::to_string(thread_id_.load()) + "/stat");
      std::string line;
      std::getline(file, line);
      const auto name_end = line.rfind(')');
      return name_end != std::string::npos && line[name_end + 2] == 'S';
    });
  }
  void join() { thread_.join(); }

 private:
  std::atomic<long> thread_id_{0};
  std::thread thread_;
};

/// A child dies in wake(), after it cleared the bit of `word`; a thread here that slept on it is awake in the end.
template <class Wake>
void check_is_woken(EventWord& word, Wake wake) {
  InHeap<std::atomic<int>> go;
  Forked killed([&] {
    until([&] { return go->load() == 1; });
    kill_at("event_word.cleared");
    wake();
  });
  Sleeper sleeper(word);
  sleeper.until_asleep();
  go->store(1);
  CHECK(killed.join() == -SIGKILL);
  Session::current().reclaim_all();
  sleeper.join();
}

}  // namespace

TEST_CASE("lost wake-up: those that sleep on a semaphore are woken by the reclaimer") {
  auto part = SharedPart<SemaphoreLayout>::create(BlockType::kSemaphore);
  check_is_woken(part->event, [&] { part->event.notify_one(); });
}

TEST_CASE("lost wake-up: those that sleep on an event are woken by the reclaimer") {
  auto part = SharedPart<EventLayout>::create(BlockType::kEvent);
  check_is_woken(part->changed, [&] { part->changed.notify_all(); });
}

TEST_CASE("lost wake-up: those that sleep at a barrier are woken by the reclaimer") {
  auto part = SharedPart<BarrierLayout>::create(BlockType::kBarrier);
  check_is_woken(part->event, [&] { part->event.notify_all(); });
}

TEST_CASE("lost wake-up: those that sleep on a ring are woken by the reclaimer") {
  Ring ring = Ring::create(4, 1, 0);
  auto& layout = *reinterpret_cast<RingLayout*>(ring.hold().data());
  const bool getters = GENERATE(true, false);
  EventWord& word = getters ? layout.not_empty : layout.not_full;
  check_is_woken(word, [&] { word.notify_one(); });
}
