// Telling of a write to a read-only block, when it has faulted.
#pragma once

#include <signal.h>

#include <cstddef>

namespace shoal {

/// From now on a SIGSEGV in the read-only view writes one line to stderr, naming the process and what it wrote to,
/// before the signal takes its course: handlers that were there before are called, as if this one did not exist; a
/// handler that is set later replaces it. Called by ReadOnlyView, once in a process and those forked from it.
void install_read_only_fault_handler();

/// Whether this is that handler: who would put a handler of its own on top twice has to know.
bool is_read_only_fault_handler(const struct sigaction& action) noexcept;

/// Called in the handler, before the line is written: for the record that a crashing process leaves behind.
void observe_read_only_faults(void (*note)(int signal, siginfo_t* info, void* context));

/// "wrote to the read-only LABEL at byte N" for a signal that was raised by such a write; 0 and nothing otherwise. Can
/// be called in a signal handler. Returns the length, without the zero at the end.
std::size_t describe_read_only_fault(int signal, const siginfo_t* info, char* text, std::size_t capacity) noexcept;

}  // namespace shoal
