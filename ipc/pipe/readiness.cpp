#include <shoal/internal/ipc/pipe/readiness.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/ipc/process/liveness_watch.h>
#include <shoal/internal/ipc/wait/wait_any.h>
#include <shoal/ipc/error.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <mutex>

namespace shoal {
namespace {

constinit OnePerProcess<ReadinessWatch> the_watch;
constinit std::mutex mutex;  // of what it has

[[gnu::init_priority(101)]] const AtFork at_fork({
    .before = &ForkWaitsFor<mutex>::lock,
    .in_parent = &ForkWaitsFor<mutex>::unlock,
    .in_child =
        []() noexcept {
          the_watch.forget();
          ForkWaitsFor<mutex>::unlock();
        },
});

}  // namespace

ReadinessWatch& ReadinessWatch::current() { return the_watch.get(); }

ReadinessWatch::ReadinessWatch() {
  start_service_thread("shoal-ready", [this] { serve(); });
}

int ReadinessWatch::descriptor(const std::shared_ptr<Core>& core) {
  std::lock_guard lock(mutex);
  if (core->ready && core->fork_count == fork_count()) return core->ready.get();
  Fd fresh = lift(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!fresh) throw SystemError("making an eventfd for a connection", errno, "raise the limit of descriptors");
  core->ready = std::move(fresh);
  core->fork_count = fork_count();
  core->signaled = false;
  watched_.push_back(core);
  core->watched = true;
  update(*core);
  changed_.notify_all();
  return core->ready.get();
}

void ReadinessWatch::look_again(Core& core) {
  ReadinessWatch* watch = the_watch.if_there();
  if (!watch) return;
  std::lock_guard lock(mutex);
  if (core.fork_count != fork_count()) return;
  watch->update(core);
  watch->changed_.notify_all();
}

/// Makes the descriptor say what is. A message that comes after the look is seen by the thread.
void ReadinessWatch::update(Core& core) {
  const bool ready = core.closed || core.in->is_ready();
  if (ready == core.signaled) return;
  std::uint64_t one = 1;
  // An eventfd that is written once and read once never blocks or fails.
  ssize_t done = ready ? ::write(core.ready.get(), &one, sizeof one) : ::read(core.ready.get(), &one, sizeof one);
  core.signaled = done == sizeof one ? ready : core.signaled;
}

/// This thread takes no message: a wake-up that it got was for somebody who receives.
void ReadinessWatch::pass_on() {
  std::lock_guard lock(mutex);
  for (const std::weak_ptr<Core>& weak : watched_)
    if (const auto core = weak.lock(); core && !core->signaled && core->in->is_ready())
      core->in->message_event().notify_one();
}

void ReadinessWatch::serve() {
  std::vector<PreparedEvent> events;
  LivenessWatch watch;
  for (;;) {
    events.clear();
    events.push_back({&changed_, changed_.prepare()});
    {
      std::lock_guard lock(mutex);
      std::erase_if(watched_, [&](const std::weak_ptr<Core>& weak) {
        auto core = weak.lock();
        if (!core) return true;
        SHOAL_KILL_POINT("readiness.serve.holds");
        if (core->signaled) return false;  // until it is received from
        EventWord& event = core->in->message_event();
        events.push_back({&event, event.prepare()});
        update(*core);
        return false;
      });
    }
    // A ring that is gone meanwhile is still mapped memory.
    sleep_on_any(events, watch.nap());
    for (std::size_t i = 1; i < events.size(); ++i) events[i].event->leave();
    pass_on();
    watch.woke();  // end of file by a death: whoever finds it closes the ring, which wakes this thread
  }
}

}  // namespace shoal
