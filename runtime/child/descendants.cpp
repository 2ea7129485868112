#include <shoal/internal/runtime/child/descendants.h>

#include <errno.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>

namespace shoal {
namespace {

/// One that cannot die within this (stuck in a driver) is reclaimed by whoever meets it later.
constexpr auto kLongestDying = std::chrono::seconds(2);

void end_orphan(SessionCore& session, ProcessTag orphan) {
  try {
    Fd process = open_pidfd(session.record(orphan.slot()).pid);
    if (!session.is_alive(orphan)) return;  // the descriptor may be of another process that got its pid
    send_signal(process, SIGKILL);
    int descriptor = process.get();
    wait_readable({&descriptor, 1}, Deadline::after(kLongestDying));
  } catch (const SystemError&) {
    // Gone already.
  }
}

void clean_up_after(SessionCore& session, ProcessTag dead) {
  // Read before the slot is somebody else's.
  const bool has_children = session.record(dead.slot()).children != 0;
  session.reclaim(dead);
  if (!has_children) return;
  for (std::uint32_t slot = 0, end = session.layout().slots_touched.load(); slot < end; ++slot) {
    // Also one that somebody who waits for something has reclaimed already (kFree): it may have children of its own.
    ProcessRecord& process = session.record(slot);
    const std::uint32_t generation = process.generation;
    if (ProcessRecord::state_of(process.state) == ProcessRecord::kTaking || process.parent != dead.word()) continue;
    if (process.generation != generation) continue;  // another one by now: the parent was not this one's
    ProcessTag orphan(slot, generation);
    if (session.is_alive(orphan)) end_orphan(session, orphan);
    clean_up_after(session, orphan);
  }
}

}  // namespace

void note_parent(ProcessTag parent) {
  SessionCore& session = SessionCore::current();
  session.record(session.self().slot()).parent = parent.word();
}

void note_child_started() {
  SessionCore& session = SessionCore::current();
  session.record(session.self().slot()).children.fetch_add(1);
}

void clean_up_after(pid_t pid) {
  SessionCore& session = SessionCore::current();
  // Any process that waits for anything reclaims the dead that it finds, and may have been first: what is left then is
  // to wait for those that they had started.
  for (std::uint32_t slot = 0, end = session.layout().slots_touched.load(); slot < end; ++slot) {
    ProcessRecord& process = session.record(slot);
    const std::uint32_t generation = process.generation;
    if (process.pid == pid && process.children != 0 && ProcessRecord::state_of(process.state) == ProcessRecord::kFree &&
        process.generation == generation)
      clean_up_after(session, ProcessTag(slot, generation));
  }
  // More than one if a pid came round before its earlier owner was reclaimed.
  while (ProcessTag tag = session.find(pid)) {
    if (session.is_alive(tag)) return;  // the pid is a new process's by now: it was reclaimed by another
    clean_up_after(session, tag);
    if (session.find(pid) == tag) return;  // somebody else is reclaiming it
  }
}

Fd open_pidfd_of_new_child(pid_t pid) {
  try {
    return open_pidfd(pid);
  } catch (const SystemError&) {
    siginfo_t info{};
    if (::waitid(P_PID, id_t(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
      // A child that nobody has waited for is surely this one; if other code of the program has, it is gone.
      ::kill(pid, SIGKILL);
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
    }
    if (Session::exists()) clean_up_after(pid);
    throw;
  }
}

}  // namespace shoal
