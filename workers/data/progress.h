// A progress bar: with a rate on a terminal, plain lines elsewhere.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shoal {

/// What a progress bar shows, and where.
struct ProgressBarOptions {
  std::int64_t total = 0;                          ///< the count that is 100 %; 0: not known
  std::string label = "";                          ///< text in front of the bar
  std::string unit = "samples";                    ///< unit of the rate: "samples/s"
  std::int64_t per_unit = 1;                       ///< counts in one unit: 1 << 20 (bytes) for "MiB"
  int fd = STDERR_FILENO;                          ///< descriptor to write to; not owned
  std::chrono::milliseconds redraw_every{100};     ///< on a terminal
  std::chrono::milliseconds new_line_every{5000};  ///< elsewhere
};

/// Shows how far something is. One thread of one process draws; if several processes work, they count into shared
/// memory, and the one that owns the terminal draws. The bar stays on one line, changes no setting of the terminal and
/// hides nothing, so there is nothing to restore when the process is killed. If it is destroyed before finish() (an
/// exception), it ends the line.
class ProgressBar {
 public:
  /// Draws nothing yet: update() does.
  explicit ProgressBar(ProgressBarOptions options);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Shows `done` of the total, counted from the beginning, and `note` behind the rate ("loss 0.41"). Draws at most as
  /// often as the options say.
  void update(std::int64_t done, const std::string& note = "");
  /// Draws the last state and ends the line.
  void finish(const std::string& note = "");

  bool on_terminal() const { return on_terminal_; }  ///< whether it is a bar; false: lines
  double seconds() const;                            ///< since the constructor

 private:
  void draw(const std::string& note, bool last);

  ProgressBarOptions options_;
  bool on_terminal_;
  bool finished_ = false;
  bool line_open_ = false;
  std::int64_t done_ = 0;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point drawn_;
};

/// What a progress bar shows at one moment.
struct ProgressState {
  std::string label;          ///< in front of the bar
  std::int64_t done = 0;      ///< from the beginning
  std::int64_t total = 0;     ///< 0: not known
  double seconds = 0;         ///< since the beginning
  std::string unit;           ///< of the rate
  std::string note;           ///< behind the rate
  std::int64_t per_unit = 1;  ///< of what is counted
};

/// One line of at most `width` columns, with a bar if there is enough space left for it.
std::string progress_line(const ProgressState& state, std::size_t width);

/// 1234567 -> "1,234,567"
std::string with_thousands(std::int64_t value);

}  // namespace shoal
