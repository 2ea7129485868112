#include <shoal/workers/data/progress.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/text/utf8_fit.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace shoal {
namespace {

constexpr std::size_t kWidthWhereUnknown = 100;
constexpr std::size_t kWidestBar = 30;
constexpr std::size_t kNarrowestBar = 8;

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && !(term != nullptr && std::string_view(term) == "dumb");
}

std::size_t columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kWidthWhereUnknown;
}

// What can't be shown is not worth failing for: the work goes on if the terminal is gone.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(std::size_t(written));
  }
}

std::string as_minutes(double seconds) {
  const auto whole = std::int64_t(std::lround(std::clamp(seconds, 0.0, 3.6e6)));
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

std::string with_thousands(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::ptrdiff_t first = value < 0 ? 1 : 0;
  for (auto position = std::ptrdiff_t(digits.size()) - 3; position > first; position -= 3) {
    digits.insert(std::size_t(position), 1, ',');
  }
  return digits;
}

std::string progress_line(const ProgressState& state, std::size_t width) {
  const double rate = state.seconds > 0 ? double(state.done) / state.seconds : 0;
  std::string tail;
  double share = 0;
  if (state.total > 0) {
    share = std::clamp(double(state.done) / double(state.total), 0.0, 1.0);
    tail += fmt::format("{:3.0f}% ", std::floor(share * 100));
  }
  // Of units that are many of what is counted, tenths matter: a slow disk reads few MiB a second.
  tail += state.per_unit == 1 ? fmt::format(" {} {}/s ", with_thousands(std::llround(rate)), state.unit)
                              : fmt::format(" {:.1f} {}/s ", rate / double(state.per_unit), state.unit);
  if (state.done >= state.total || rate <= 0) {
    tail += fmt::format(" {}", as_minutes(state.seconds));
  } else {
    tail += fmt::format(" {} left", as_minutes(double(state.total - state.done) / rate));
  }
  if (!state.note.empty()) tail += fmt::format("  {}", state.note);

  std::string line;
  if (!state.label.empty()) line = fmt::format("{}  ", state.label);
  const std::size_t taken = column_count(line) + column_count(tail) + 3;
  if (state.total > 0 && taken + kNarrowestBar <= width) {
    const std::size_t bar = std::min(kWidestBar, width - taken);
    const auto filled = std::size_t(share * double(bar));
    line += fmt::format("[{:=<{}}{:.<{}}] ", "", filled, "", bar - filled);
  }
  line += tail;
  return column_count(line) > width ? fit_columns(line, width) : line;
}

ProgressBar::ProgressBar(ProgressBarOptions options)
    : options_(std::move(options)),
      on_terminal_(is_terminal(options_.fd)),
      started_(std::chrono::steady_clock::now()),
      drawn_(started_) {}

ProgressBar::~ProgressBar() {
  if (line_open_) write_all(options_.fd, "\n");
}

double ProgressBar::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

void ProgressBar::update(std::int64_t done, const std::string& note) {
  done_ = done;
  const auto now = std::chrono::steady_clock::now();
  const auto since = now - drawn_;
  // Without a terminal the full bar is finish()'s line: one is enough.
  const bool full = options_.total > 0 && done_ >= options_.total;
  const bool due =
      on_terminal_ ? !line_open_ || since >= options_.redraw_every : !full && since >= options_.new_line_every;
  if (finished_ || !due) return;
  drawn_ = now;
  draw(note, false);
}

void ProgressBar::finish(const std::string& note) {
  if (std::exchange(finished_, true)) return;
  draw(note, true);
}

void ProgressBar::draw(const std::string& note, bool last) {
  const ProgressState state{.label = options_.label,
                            .done = done_,
                            .total = options_.total,
                            .seconds = seconds(),
                            .unit = options_.unit,
                            .note = note,
                            .per_unit = options_.per_unit};
  if (on_terminal_) {
    // One column is left free: a terminal that fills its last one may go to the next line. \x1b[K clears what stood
    // behind.
    write_all(options_.fd,
              fmt::format("\r{}\x1b[K{}", progress_line(state, columns_of(options_.fd) - 1), last ? "\n" : ""));
    line_open_ = !last;
  } else {
    write_all(options_.fd, progress_line(state, kWidthWhereUnknown + 60) + "\n");
  }
}

}  // namespace shoal
