// The table of a sweep: a row a run, drawn anew on a terminal while results come.
#pragma once

#include <shoal/internal/runtime/configure/node.h>
#include <shoal/internal/runtime/sweep/plan.h>

#include <cstddef>
#include <string>
#include <vector>

namespace shoal::detail {

/// What became of a run.
struct SweepOutcome {
  enum class State { waiting, done, kept, failed };
  State state = State::waiting;
  config::Node result = {};  // a table: its members are columns
  double seconds = 0;
  std::string error = {};
};

class SweepBoard {
 public:
  SweepBoard(std::vector<SweepAxis> axes, std::vector<SweepRun> runs, int fd);

  /// Shows what became of a run: on a terminal in the table, elsewhere in a line.
  void set(std::size_t run, SweepOutcome outcome);
  /// Draws the table, if this is a terminal.
  void draw();
  std::string table() const;
  std::size_t failures() const;

 private:
  std::string line_of(std::size_t run) const;

  std::vector<SweepAxis> axes_;
  std::vector<SweepRun> runs_;
  std::vector<SweepOutcome> outcomes_;
  int fd_;
  bool on_terminal_;
  std::size_t drawn_ = 0;  // lines of the table above the cursor
};

}  // namespace shoal::detail
