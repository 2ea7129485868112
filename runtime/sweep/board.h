// The table of a sweep: a row a run, drawn anew on a terminal while results come.
#pragma once

#include <shoal/internal/runtime/configure/node.h>
#include <shoal/internal/runtime/sweep/plan.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::detail {

/// What became of a run.
struct SweepOutcome {
  enum class State { waiting, done, kept, failed };
  State state = State::waiting;
  config::Node result = {};            // a table: its members are columns
  std::optional<double> seconds = {};  // none: nobody measured how long it took to fail
  std::string error = {};
};

class SweepBoard {
 public:
  SweepBoard(std::vector<SweepAxis> axes, std::vector<SweepRun> runs, int fd);

  /// Shows what became of a run: in the table where that is drawn, elsewhere in a line.
  void set(std::size_t run, SweepOutcome outcome);
  /// Draws the table, if this is a terminal that it fits into; what is too wide is cut off.
  void draw();
  /// Writes the whole table to stdout: on a terminal in place of the drawn one. Then why runs failed, where no line has said
  /// so.
  void print();
  std::string table() const;
  std::size_t failures() const;

 private:
  std::string line_of(std::size_t run) const;
  bool is_drawn() const;
  void clear();
  void write(std::string_view text);

  std::vector<SweepAxis> axes_;
  std::vector<SweepRun> runs_;
  std::vector<SweepOutcome> outcomes_;
  int fd_;
  bool on_terminal_;
  std::size_t over_ = 0;             // runs that are
  std::size_t drawn_ = 0;            // lines of the table above the cursor
  std::vector<std::size_t> unsaid_;  // runs that have failed, and no line has said why
  bool is_stalled_ = false;          // nobody reads
};

}  // namespace shoal::detail
