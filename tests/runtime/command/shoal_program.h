// Runs the program shoal, as a user does.
#pragma once

#include <shoal/ipc/fd.h>
#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace shoal::test {

/// The built `shoal`, and a program for it to start (programs/rank_program).
extern const std::string kShoal, kRankProgram;

struct ProgramResult {
  int code = 0;  // minus the signal's number where one ended it
  std::string output, error;
};

/// A process with pipes for its output, in a process group of its own. Killed with its group by the destructor, if it
/// still runs. One thread.
class RunningProgram {
 public:
  /// `before`: called in the child, before it executes.
  explicit RunningProgram(const std::vector<std::string>& arguments, const std::function<void()>& before = {});
  RunningProgram(const RunningProgram&) = delete;
  ~RunningProgram();

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Reads its output to the end, and waits for it.
  ProgramResult finish();

 private:
  pid_t pid_;
  Fd output_, error_;
};

ProgramResult run_program(const std::vector<std::string>& arguments, const std::function<void()>& before = {});
/// `shoal run OPTIONS -- rank_program STEPS`
ProgramResult run_ranks(std::vector<std::string> options, const std::vector<std::string>& steps);
std::vector<std::string> ranks_command(std::vector<std::string> options, const std::vector<std::string>& steps);

std::vector<std::string> lines_of(const std::string& path);
/// The lines of a text, of ranks whose order is nobody's.
std::set<std::string> sorted_lines(const std::string& text);
/// Waits until the file has that many lines; the test's watchdog ends a wait that has no end.
std::vector<std::string> wait_for_lines(const std::string& path, std::size_t count);

}  // namespace shoal::test
