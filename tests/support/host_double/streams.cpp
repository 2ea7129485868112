#include "tests/support/host_double/streams.h"

#include <fcntl.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/support/host_double/host_double.h"

namespace shoal::host_double {
namespace {

struct OpaqueEvent {
  std::uint64_t magic;
  std::int32_t process, file;
  std::uint64_t inode;
};
constexpr std::uint64_t kEventMagic = 0x746e657665;  // "event"

std::atomic<int> made{0}, opened{0};
std::atomic<bool> streams_exist{false};

std::shared_ptr<EventWords> map_words(int file) {
  void* words = ::mmap(nullptr, sizeof(EventWords), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (words == MAP_FAILED) throw DeviceError("the double cannot map an event");
  return {static_cast<EventWords*>(words), [](EventWords* mapped) { ::munmap(mapped, sizeof *mapped); }};
}

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

Event* make_event(bool for_others) {
  if (for_others && made >= kMostEvents) throw DeviceError("the double has no more events for other processes");
  auto event = std::make_unique<Event>();
  event->file = Fd(::memfd_create("double-event", MFD_CLOEXEC));
  if (!event->file || ::ftruncate(event->file.get(), sizeof(EventWords)) != 0)
    throw DeviceError("the double has no memory for an event");
  event->words = map_words(event->file.get());
  event->owner = ::getpid();
  event->for_others = for_others;
  made += for_others;
  return event.release();
}

EventHandle handle_of(const Event& event) {
  struct stat status{};
  ::fstat(event.file.get(), &status);
  OpaqueEvent opaque{kEventMagic, event.owner, event.file.get(), status.st_ino};
  EventHandle handle;
  std::memcpy(handle.bytes.data(), &opaque, sizeof opaque);
  return handle;
}

Event* open_event(const EventHandle& handle) {
  OpaqueEvent opaque;
  std::memcpy(&opaque, handle.bytes.data(), sizeof opaque);
  if (opaque.magic != kEventMagic) throw DeviceError("the double: an invalid event handle");
  if (opaque.process == ::getpid()) throw DeviceError("the double: an event of the own process");
  const std::string path = "/proc/" + std::to_string(opaque.process) + "/fd/" + std::to_string(opaque.file);
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0 || status.st_ino != opaque.inode)
    throw DeviceError("the double: the event's process or the event is gone");
  auto event = std::make_unique<Event>();
  event->words = map_words(file.get());
  event->owner = opaque.process;
  ++opened;
  return event.release();
}

void destroy(Event* event) noexcept {
  if (!event) return;
  if (event->for_others) --made;
  if (!event->file) --opened;
  delete event;
}

int events_made() { return made; }
int events_opened() { return opened; }

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

void Streams::enqueue(Key stream, std::function<void()> work, std::function<bool()> ready) {
  std::lock_guard lock(mutex_);
  streams_[stream].jobs.push_back({std::move(work), std::move(ready)});
  changed_.notify_all();
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
  enqueue(
      stream, [] {},
      [words = event.words, version, owner = event.owner] { return words->done >= version || !is_running(owner); });
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

void Streams::settle(Key key) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return streams_[key].jobs.empty() || streams_[key].blocked; });
}

void Streams::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    bool progress = false, waiting = false;
    for (auto& [key, stream] : streams_) {
      if (stream.jobs.empty()) continue;
      const Job& job = stream.jobs.front();  // stays in front while it runs: the stream is not idle
      if (job.ready && !job.ready()) {
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
