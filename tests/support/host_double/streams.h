// The host double's streams and events.
#pragma once

#include <c10/core/Stream.h>
#include <shoal/internal/tensors/driver/device_memory.h>
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

#include "tests/support/host_double/host_double.h"

namespace shoal::host_double {

/// What has been recorded on an event, and what of it has happened.
struct EventWords {
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<std::uint64_t> done{0};
  std::atomic<std::int64_t> nanoseconds{0};  // when it was done last
};

struct Event {
  std::shared_ptr<EventWords> words = std::make_shared<EventWords>();
  int device = -1;  // on whose streams it may be recorded; -1: any
  bool is_timed = false;
};

/// Throws if there are kMostEvents of this process.
Event* make_event();
void destroy(Event* event) noexcept;
int live_events();

bool is_running(pid_t process);

/// Streams of all devices: queues, and one thread that works on those whose first job is ready.
class Streams {
 public:
  static Streams& current();
  static bool exist();

  using Key = std::pair<int, c10::StreamId>;
  static Key key(c10::Stream stream) { return {stream.device_index(), stream.id()}; }

  void enqueue(Key stream, std::function<void()> work, std::function<bool()> ready = nullptr);
  /// Lets the stream write a word of the host's memory. False, and nothing is queued, if some stream is still to write
  /// as much there, or more.
  bool enqueue_write(Key stream, std::uint64_t* word, std::uint64_t value);
  /// As if it were work: lets the stream wait until it is so. A wait for what may come from outside stands in one of the
  /// device's few hardware queues: when it does in all of them, work of other streams has to wait as well.
  void await_from_outside(Key stream, const std::uint64_t* word, std::function<bool()> so);
  /// Whether some stream has still to write or read a word in there.
  bool has_words_in(const std::byte* start, std::size_t bytes);
  void record(Key stream, Event& event);
  void wait(Key stream, Event& event);
  void synchronize(const Event& event);
  bool idle(Key stream);
  void synchronize(Key stream);
  void synchronize_all();
  /// Waits until the device has nothing to do.
  void synchronize_device(int device);
  void settle(Key stream);
  void set_queues(int queues) { queues_ = queues; }
  int queues() const { return queues_; }

 private:
  struct Job {
    std::function<void()> work;
    std::function<bool()> ready;
    bool takes_queue = false;
    const std::uint64_t* word = nullptr;
    std::uint64_t written = 0;  // there
  };
  struct Stream {
    std::deque<Job> jobs;
    bool blocked = false;
  };
  void run();
  bool has_queue(int device);

  std::atomic<int> queues_{kQueues};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Stream> streams_;
};

/// What libtorch's guard gives as a stream's native handle: null for the default stream of each device.
void* handle_of(Streams::Key stream);
/// Throws DeviceError if it is a stream of another device.
Streams::Key key_of(void* handle, int device);

}  // namespace shoal::host_double
