// How a process ended.
#pragma once

#include <shoal/ipc/fd.h>

#include <optional>
#include <string>

namespace shoal {

/// Exit code or signal of a process that has ended. The fork server sends it as it is to the process that asked for the
/// child.
struct ExitStatus {
  int code = 0;     ///< as given to exit(); 0 if a signal ended it
  int signal = 0;   ///< 0: it exited by itself
  int unknown = 0;  ///< 1: somebody else in the program took the status, or the fork server died

  bool succeeded() const { return code == 0 && signal == 0 && unknown == 0; }  ///< it exited by itself, with 0
  /// Like Python's `exitcode`: the exit code, or minus the signal's number; 255 if it is unknown.
  int as_number() const { return unknown ? 255 : signal ? -signal : code; }
};

/// Reaps a child of this process that is known to have ended. `process` is its pidfd.
ExitStatus reap(const Fd& process);

/// "SIGKILL" for 9.
std::string signal_name(int signal);

}  // namespace shoal
