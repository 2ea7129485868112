// Writes down how this process dies, where it still can.
#pragma once

#include <shoal/internal/runtime/crash/record.h>

#include <string>

namespace shoal {

/// In a started process, from the thread that will run the user's function: from now on SIGSEGV, SIGBUS, SIGILL,
/// SIGFPE, SIGABRT, SIGSYS, SIGTRAP and std::terminate are written into the record before they take their course.
/// Handlers that were there before are called afterwards, as if this one did not exist; handlers set later replace
/// it. The calling thread gets an alternate stack, if it has none, so that its stack may overflow (a thread that the
/// user starts has none: there the end of an overflow is told, but not its place). In a process that is forked off
/// behind shoal's back nothing is written.
void install_crash_handler(CrashRecord& record);

/// Does beforehand what install_crash_handler would do slowly in every forked child: to be called by those that fork
/// them. Threads: any.
void prepare_crash_handler();

/// The record of this process, null in one that was not started by shoal.
CrashRecord* own_crash_record() noexcept;

/// What the function threw, for the case that the report does not get through. The stack is there already, if
/// the exception has passed traced_call().
void note_exception(const std::string& type, const std::string& message) noexcept;

}  // namespace shoal
