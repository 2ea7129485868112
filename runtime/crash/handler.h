// The crash handler: a dying process writes down how it dies.
#pragma once

#include <shoal/internal/runtime/crash/record.h>

#include <string>

namespace shoal {

/// Called in a started process, by the thread that will run the user's function. From now on SIGSEGV, SIGBUS, SIGILL,
/// SIGFPE, SIGABRT, SIGSYS, SIGTRAP and std::terminate are written into the record before they take their course.
/// Handlers that were there before are called afterwards, as if this one did not exist; handlers set later replace it.
/// The calling thread gets an alternate stack, if it has none, so that its stack may overflow. (A thread that the user
/// starts has none: the parent learns of an overflow there, but not its place.) A process that the program forks by
/// itself writes nothing.
void install_crash_handler(CrashRecord& own);

/// Does in advance what install_crash_handler would do slowly in every forked child: processes that fork call it.
/// Threads: any.
void prepare_crash_handler();

/// The record of this process; null if shoal did not start it, as in any process that the program forks. It compares
/// pids, since a child of vfork(), of which the steps around a fork know nothing, may write or crash here.
/// Async-signal-safe.
CrashRecord* own_crash_record() noexcept;

/// Notes when and where an exception was thrown that nobody catches on its way to traced_call(): before the first
/// destructor runs, which may let others fail.
void note_throw(CrashRecord& own) noexcept;

/// Notes what the function threw, in case the report does not get through. The time and the stack are there already if
/// the exception has passed traced_call().
void note_exception(const std::string& type, const std::string& message) noexcept;

}  // namespace shoal
