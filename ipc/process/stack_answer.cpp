#include <shoal/internal/ipc/process/stack_answer.h>

#include <errno.h>
#include <setjmp.h>
#include <shoal/internal/ipc/base/frame_walk.h>
#include <shoal/internal/ipc/base/stack_request.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace shoal::stack_answer {
namespace {

// Of this process; read by signal handlers, so set before those are installed.
struct sigaction action_before;

/// Where a thread goes on that faults while it walks up its stack; one for each place. Not thread-local: those of a
/// library that was loaded late are allocated at their first use.
struct WayOut {
  std::atomic<pid_t> thread{0};  // that is walking; 0: none
  sigjmp_buf at{};
};
constinit WayOut ways_out[StackRecords::kCount];

// The reader copies the bytes from outside. The orders in this file are for the sake of such a copy: on the way to memory
// no store overtakes the one that says that it is valid.

/// False if there is no room for more.
bool add_frame(StackRecord& record, std::uintptr_t address) {
  const std::uint32_t count = record.count.load(std::memory_order_relaxed);  // relaxed: this thread alone writes
  if (count >= StackRecord::kMostFrames) return false;
  record.frames[count].store(address, std::memory_order_relaxed);  // relaxed: `state` makes it count
  record.count.store(count + 1, std::memory_order_relaxed);        // relaxed: likewise
  return count + 1 < StackRecord::kMostFrames;
}

/// Writes what is seen one by one, so that a stack which is broken half-way keeps what there is.
void walk_up(StackRecord& record, WayOut& way_out, const void* context) {
  record.count.store(0, std::memory_order_relaxed);  // relaxed: as in add_frame
  const std::uintptr_t from = registers_in(context).instruction;
  add_frame(record, from);
  if (sigsetjmp(way_out.at, 1) == 0) {
    // release: after `at` was set. Only a handler on this very thread reads it.
    way_out.thread.store(::gettid(), std::memory_order_release);
    walk_frames(from, [&record](std::uintptr_t address) { return add_frame(record, address); });
  }
  way_out.thread.store(0, std::memory_order_release);  // release: after the walk
}

void answer(const StackRequest& request, const void* context) {
  if (request.place >= StackRecords::kCount || !Session::exists()) return;
  SessionCore& session = SessionCore::current();
  const ProcessTag self = session.self_if_known();
  if (!self) return;  // a forked child that is no part of the session yet: the records are its parent's
  auto* tables = reinterpret_cast<StackRecords*>(session.base() + session.layout().stacks);
  StackRecord& record = tables[self.slot()].records[request.place];
  std::uint32_t state = record.state.load(std::memory_order_relaxed);  // relaxed: the CAS decides
  // Odd: another thread of this process is at it; or one was when the slot's last process died.
  if ((state & 1) != 0 && record.owner.load(std::memory_order_relaxed) == self.word()) return;  // relaxed: likewise
  const std::uint32_t done = request.number * 2;
  // acquire: what follows is not written before it is said that the record is being written.
  if (!record.state.compare_exchange_strong(state, done + 1, std::memory_order_acq_rel)) return;
  record.owner.store(self.word(), std::memory_order_relaxed);                 // relaxed: the last store makes it count
  record.thread.store(std::uint32_t(::gettid()), std::memory_order_relaxed);  // relaxed: likewise
  walk_up(record, ways_out[request.place], context);
  record.state.store(done, std::memory_order_release);  // release: after the stack
}

void on_request(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  if (const auto request = StackRequest::of(*info)) {
    answer(*request, context);
  } else if (action_before.sa_flags & SA_SIGINFO) {
    action_before.sa_sigaction(signal, info, context);
  } else if (action_before.sa_handler != SIG_DFL && action_before.sa_handler != SIG_IGN) {
    action_before.sa_handler(signal);
  }
  errno = error;
}

}  // namespace

void install() noexcept {
  struct sigaction there;
  if (::sigaction(kStackSignal, nullptr, &there) != 0) return;
  if ((there.sa_flags & SA_SIGINFO) && there.sa_sigaction == &on_request) return;
  action_before = there;
  struct sigaction action{};
  action.sa_sigaction = &on_request;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigaction(kStackSignal, &action, nullptr);
}

void leave_broken_stack() noexcept {
  const pid_t self = ::gettid();
  for (WayOut& way_out : ways_out)
    if (way_out.thread.load(std::memory_order_acquire) == self)  // acquire: `at` was set before
      ::siglongjmp(way_out.at, 1);
}

}  // namespace shoal::stack_answer
