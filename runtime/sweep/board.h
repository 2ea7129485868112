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
  /// Draws the table, if this is a terminal that it fits into; what is too wide is cut off.
  void draw();
  /// Writes the whole table to stdout: on a terminal in place of the drawn one.
  void print();
  std::string table() const;
  std::size_t failures() const;

 private:
  std::string line_of(std::size_t run) const;
  void clear();

  std::vector<SweepAxis> axes_;
  std::vector<SweepRun> runs_;
  std::vector<SweepOutcome> outcomes_;
  int fd_;
  bool on_terminal_;
  std::size_t over_ = 0;   // runs that are
  std::size_t drawn_ = 0;  // lines of the table above the cursor
};

}  // namespace shoal::detail
