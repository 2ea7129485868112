// The host double's streams and events.
#pragma once

#include <c10/core/Stream.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/ipc/fd.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace shoal::host_double {

/// What has been recorded on an event, and what of it has happened. In memory that other processes can open.
struct EventWords {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> done;
  std::atomic<std::int64_t> nanoseconds;  // when it was done last
};

struct Event {
  std::shared_ptr<EventWords> words;
  Fd file;  // its memory, where this process made it
  pid_t owner = 0;
  bool for_others = false;  // made by create_event, counted
};

Event* make_event(bool for_others);
EventHandle handle_of(const Event& event);
Event* open_event(const EventHandle& handle);
void destroy(Event* event) noexcept;
int events_made();
int events_opened();

bool is_running(pid_t process);

/// Streams of all devices: queues, and one thread that works on those whose first job is ready.
class Streams {
 public:
  static Streams& current();
  static bool exist();

  using Key = std::pair<int, c10::StreamId>;
  static Key key(c10::Stream stream) { return {stream.device_index(), stream.id()}; }

  void enqueue(Key stream, std::function<void()> work, std::function<bool()> ready = nullptr);
  void record(Key stream, Event& event);
  void wait(Key stream, Event& event);
  void synchronize(const Event& event);
  bool idle(Key stream);
  void synchronize(Key stream);
  void synchronize_all();
  void settle(Key stream);

 private:
  struct Job {
    std::function<void()> work;
    std::function<bool()> ready;
  };
  struct Stream {
    std::deque<Job> jobs;
    bool blocked = false;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Stream> streams_;
};

}  // namespace shoal::host_double
