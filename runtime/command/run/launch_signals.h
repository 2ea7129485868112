// The signals that a launcher answers.
#pragma once

#include <shoal/ipc/fd.h>
#include <signal.h>

#include <optional>
#include <vector>

namespace shoal::command {

/// While it exists, these signals and SIGTSTP do not act on this process but wait to be read here.
/// One a process, made while it has one thread. Ranks do not inherit that: exec_program() clears masks.
class LaunchSignals {
 public:
  explicit LaunchSignals(std::vector<int> signals);
  LaunchSignals(const LaunchSignals&) = delete;
  ~LaunchSignals();

  /// Readable when one has come.
  int descriptor() const { return signals_.get(); }
  std::optional<int> next();

 private:
  Fd signals_;
  sigset_t before_;
};

}  // namespace shoal::command
