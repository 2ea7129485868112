#include <shoal/internal/runtime/os/lifeline.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace shoal {
namespace {

// Numbers and not Fd: a fork's child and static destruction must find them plain.
constinit std::mutex pipe_mutex;
std::atomic<int> reading{-1}, writing{-1};  // of this process
std::atomic<int> watched{-1};               // its parent's

void close_and_clear(std::atomic<int>& descriptor) noexcept {
  const int number = descriptor.exchange(-1);
  if (number >= 0) ::close(number);
}

[[gnu::init_priority(101)]] const AtFork lifeline_at_fork({
    .stage = ForkStage::kProcess,
    .before = &ForkWaitsFor<pipe_mutex>::lock,
    .in_parent = &ForkWaitsFor<pipe_mutex>::unlock,
    // A forked child, whoever made it: while it had the writing end, its parent's death would go unnoticed. The
    // reading end is closed when the child has made its own, or has taken it for its parent's.
    .in_child =
        []() noexcept {
          close_and_clear(writing);
          ForkWaitsFor<pipe_mutex>::unlock();
        },
});

/// Whom the kernel tells is noted in the open file, which all that inherit a descriptor share: so the pipe is opened
/// anew.
int open_anew(int reading_end) noexcept {
  char path[40];
  *fmt::format_to(path, "/proc/self/fd/{}", reading_end) = '\0';
  return lift(Fd(::open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC))).release();
}

/// Of a descriptor that no other process has.
bool arm(int own) noexcept {
  return ::fcntl(own, F_SETOWN, ::getpid()) == 0 && ::fcntl(own, F_SETSIG, SIGKILL) == 0 &&
         ::fcntl(own, F_SETFL, O_NONBLOCK | O_ASYNC) == 0;
}

void end_if_cut(int reading_end) noexcept {
  pollfd polled{reading_end, POLLIN, 0};
  if (::poll(&polled, 1, 0) > 0 && (polled.revents & POLLHUP)) ::_exit(1);
}

}  // namespace

int lifeline_of_this_process() {
  std::lock_guard lock(pipe_mutex);
  if (writing.load() >= 0) return reading.load();
  close_and_clear(reading);  // a fork's copy of its parent's
  PipeEnds pipe = make_pipe();
  reading = pipe.reading.release();
  writing = pipe.writing.release();
  return reading.load();
}

void forget_inherited_lifeline() noexcept {
  close_and_clear(watched);
  if (writing.load() < 0) close_and_clear(reading);
}

void die_with_lifeline(Fd reading_end) noexcept {
  forget_inherited_lifeline();
  const int own = open_anew(reading_end.get());
  if (own >= 0) {
    if (arm(own))
      watched = own;
    else
      ::close(own);
  }
  end_if_cut(reading_end.get());  // it ended before that; only a descriptor from before can tell
}

Fd open_lifeline_for_fork() {
  Fd own(open_anew(lifeline_of_this_process()));
  if (!own && (errno == EMFILE || errno == ENFILE))
    throw SystemError("opening this process's lifeline for a child", errno);
  return own;
}

void die_with_opened_lifeline(Fd own) noexcept {
  forget_inherited_lifeline();
  if (!own || !arm(own.get())) return;
  watched = own.release();
  end_if_cut(watched);
}

}  // namespace shoal
