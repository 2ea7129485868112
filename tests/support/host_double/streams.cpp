#include "tests/support/host_double/streams.h"

#include <c10/util/Exception.h>
#include <shoal/internal/ipc/fork/service_thread.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/support/host_double/host_double.h"

namespace shoal::host_double {
namespace {

std::atomic<bool> streams_exist{false};
std::atomic<int> events{0};

}  // namespace

bool is_running(pid_t process) {
  FILE* file = std::fopen(("/proc/" + std::to_string(process) + "/stat").c_str(), "re");
  if (!file) return false;
  char text[512]{};
  const std::size_t size = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  const char* name_end = std::strrchr(text, ')');
  return size > 0 && name_end && name_end[2] != 'Z' && name_end[2] != 'X';
}

Event* make_event() {
  TORCH_CHECK(events < kMostEvents, "out of memory");
  ++events;
  return new Event;
}

void destroy(Event* event) noexcept {
  --events;
  delete event;
}

int live_events() { return events; }

Streams& Streams::current() {
  static Streams* streams = [] {
    auto* made = new Streams;  // never destroyed: its thread lasts as long as the process
    start_service_thread("streams", [made] { made->run(); });
    streams_exist = true;
    return made;
  }();
  return *streams;
}

bool Streams::exist() { return streams_exist; }

void* handle_of(Streams::Key stream) {
  if (stream.second == 0) return nullptr;
  return reinterpret_cast<void*>((std::uintptr_t(stream.second) << 8) + std::uintptr_t(stream.first));
}

Streams::Key key_of(void* handle, int device) {
  if (!handle) return {device, 0};
  const auto bits = reinterpret_cast<std::uintptr_t>(handle);
  if (int(bits & 0xff) != device) throw DeviceError("the double: a stream of another device");
  return {device, c10::StreamId(bits >> 8)};
}

void Streams::enqueue(Key stream, std::function<void()> work, std::function<bool()> ready) {
  std::lock_guard lock(mutex_);
  streams_[stream].jobs.push_back({std::move(work), std::move(ready)});
  changed_.notify_all();
}

bool Streams::enqueue_write(Key stream, std::uint64_t* word, std::uint64_t value) {
  std::lock_guard lock(mutex_);
  for (auto& [key, each] : streams_)
    for (const Job& job : each.jobs)
      if (job.word == word && job.written >= value) return false;
  auto work = [word, value] { std::atomic_ref(*word).store(value, std::memory_order_release); };
  streams_[stream].jobs.push_back({std::move(work), nullptr, false, word, value});
  changed_.notify_all();
  return true;
}

void Streams::await_from_outside(Key stream, const std::uint64_t* word, std::function<bool()> so) {
  std::lock_guard lock(mutex_);
  streams_[stream].jobs.push_back({[] {}, std::move(so), true, word});
  changed_.notify_all();
}

bool Streams::has_words_in(const std::byte* start, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  for (auto& [key, stream] : streams_)
    for (const Job& job : stream.jobs)
      if (auto* word = reinterpret_cast<const std::byte*>(job.word); word && start <= word && word < start + bytes)
        return true;
  return false;
}

void Streams::record(Key stream, Event& event) {
  const std::uint64_t version = ++event.words->recorded;
  enqueue(stream, [words = event.words, version] {
    words->nanoseconds = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
    if (words->done < version) words->done = version;
  });
}

void Streams::synchronize(const Event& event) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return event.words->done >= event.words->recorded; });
}

void Streams::wait(Key stream, Event& event) {
  const std::uint64_t version = event.words->recorded;
  enqueue(stream, [] {}, [words = event.words, version] { return words->done >= version; });
}

bool Streams::idle(Key stream) {
  std::lock_guard lock(mutex_);
  return streams_[stream].jobs.empty();
}

void Streams::synchronize(Key stream) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return streams_[stream].jobs.empty(); });
}

void Streams::synchronize_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    for (auto& [key, stream] : streams_)
      if (!stream.jobs.empty()) return false;
    return true;
  });
}

void Streams::synchronize_device(int device) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    for (auto& [key, stream] : streams_)
      if (key.first == device && !stream.jobs.empty()) return false;
    return true;
  });
}

void Streams::settle(Key key) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return streams_[key].jobs.empty() || streams_[key].blocked; });
}

/// Under the lock.
bool Streams::has_queue(int device) {
  int taken = 0;
  for (auto& [key, stream] : streams_)
    taken +=
        key.first == device && !stream.jobs.empty() && stream.jobs.front().takes_queue && !stream.jobs.front().ready();
  return taken < queues_;
}

void Streams::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    bool progress = false, waiting = false;
    for (auto& [key, stream] : streams_) {
      if (stream.jobs.empty()) continue;
      const Job& job = stream.jobs.front();  // stays in front while it runs: the stream is not idle
      const bool ready = !job.ready || job.ready();
      if (!ready || (!job.takes_queue && !has_queue(key.first))) {
        waiting = true;
        if (!std::exchange(stream.blocked, true)) changed_.notify_all();
        continue;
      }
      stream.blocked = false;
      lock.unlock();
      job.work();
      lock.lock();
      stream.jobs.pop_front();
      progress = true;
      changed_.notify_all();
    }
    if (progress) continue;
    if (waiting)
      changed_.wait_for(lock, std::chrono::microseconds(200));  // others' events say nothing when they happen
    else
      changed_.wait(lock);
  }
}

}  // namespace shoal::host_double
