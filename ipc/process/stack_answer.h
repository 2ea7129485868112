// The answer of a thread that is asked for its stack by somebody who looks on.
#pragma once

namespace shoal::stack_answer {

/// From now on each thread of this process answers a StackRequest: it writes its stack into the StackRecords of this
/// process's slot, and goes on. Nobody waits for it, and it needs nothing but the memory of the session: no allocation,
/// no lock, no thread-local variable; so it may be inside malloc, hold any lock, or be asleep in the kernel. (A system
/// call that no SA_RESTART restarts, as poll() or nanosleep(), ends with EINTR, as at any signal.) A record is a
/// process's own for good, so an answer that comes after the one who asked has given up harms nobody.
///
/// Handlers that were there before get every other SIGURG; one that the program sets later replaces this one, and its
/// threads answer no more. Forked children inherit it, and answer once they have a slot of their own. Called when this
/// process becomes part of a session.
void install() noexcept;

/// For a handler of SIGSEGV and SIGBUS: if the calling thread has faulted while it walked up its own stack for an
/// answer, because somebody's unwind tables are wrong, this does not return: the answer ends where it came to, and the
/// thread goes on. Async-signal-safe.
void leave_broken_stack() noexcept;

}  // namespace shoal::stack_answer
