#include <shoal/internal/runtime/sweep/board.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace shoal::detail {
namespace {

std::string shown(const config::Node& node) {
  if (node.kind == config::Node::Kind::real) return fmt::format("{:.6g}", node.real);
  return node.kind == config::Node::Kind::string ? node.text : config::value_text(node);
}

std::string state_text(const SweepOutcome& outcome) {
  switch (outcome.state) {
    case SweepOutcome::State::waiting:
      return "...";
    case SweepOutcome::State::done:
      return "done";
    case SweepOutcome::State::kept:
      return "done before";
    case SweepOutcome::State::failed:
      return "failed";
  }
  return "";
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written <= 0) return;  // nobody reads: the sweep goes on
    text.remove_prefix(std::size_t(written));
  }
}

winsize terminal_size(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size : winsize{};
}

/// A cell is in one line, and moves no cursor.
std::string printable(std::string text) {
  std::ranges::replace_if(text, [](char c) { return std::uint8_t(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

/// A byte that begins a character of UTF-8.
bool begins_character(char c) { return (std::uint8_t(c) & 0xc0) != 0x80; }

std::size_t width_of(const std::string& text) { return std::size_t(std::ranges::count_if(text, begins_character)); }

/// Each line is at most so wide: a longer one would take a second line, which nobody counts.
std::string cut_lines(const std::string& text, std::size_t width) {
  std::string cut;
  std::size_t at = 0;
  for (const char c : text) {
    at = c == '\n' ? 0 : at + begins_character(c);
    if (at <= width) cut += c;
  }
  return cut;
}

}  // namespace

SweepBoard::SweepBoard(std::vector<SweepAxis> axes, std::vector<SweepRun> runs, int fd)
    : axes_(std::move(axes)),
      runs_(std::move(runs)),
      outcomes_(runs_.size()),
      fd_(fd),
      on_terminal_(::isatty(fd) == 1) {}

void SweepBoard::set(std::size_t run, SweepOutcome outcome) {
  outcomes_[run] = std::move(outcome);
  ++over_;
  if (!on_terminal_) write_all(fd_, line_of(run));
}

std::string SweepBoard::line_of(std::size_t run) const {
  const SweepOutcome& outcome = outcomes_[run];
  std::string text;
  for (const config::Entry& entry : outcome.result.entries)
    text += fmt::format(", {} {}", entry.key, shown(entry.value));
  if (outcome.state == SweepOutcome::State::failed) text += ", " + outcome.error;
  return fmt::format("[{}/{}] {}: {}{}, {:.1f} s\n", over_, runs_.size(), runs_[run].name, state_text(outcome),
                     printable(text), outcome.seconds);
}

std::string SweepBoard::table() const {
  std::vector<std::string> results;
  for (const SweepOutcome& outcome : outcomes_)
    for (const config::Entry& entry : outcome.result.entries)
      if (std::ranges::find(results, entry.key) == results.end()) results.push_back(entry.key);
  std::vector<std::vector<std::string>> rows(1);
  for (const SweepAxis& axis : axes_) rows[0].push_back(axis.option);
  rows[0].insert(rows[0].end(), results.begin(), results.end());
  rows[0].emplace_back("seconds");
  rows[0].emplace_back("state");
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    const SweepOutcome& outcome = outcomes_[run];
    std::vector<std::string> row = runs_[run].values;
    for (const std::string& result : results) {
      const auto found = std::ranges::find(outcome.result.entries, result, &config::Entry::key);
      row.push_back(found == outcome.result.entries.end() ? "" : shown(found->value));
    }
    row.push_back(outcome.state == SweepOutcome::State::waiting ? "" : fmt::format("{:.1f}", outcome.seconds));
    row.push_back(state_text(outcome));
    rows.push_back(std::move(row));
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = printable(std::move(row[i]));
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      text.append((i > 0 ? 2 : 0) + widths[i] - width_of(row[i]), ' ');
      text += row[i];
    }
    text += "  " + row.back() + "\n";
  }
  return text;
}

void SweepBoard::draw() {
  // A table that does not fit cannot be drawn over: it comes once, at the end.
  if (!on_terminal_) return;
  const winsize size = terminal_size(fd_);
  if (runs_.size() + 2 > size.ws_row || size.ws_col == 0) return;
  clear();
  write_all(fd_, cut_lines(table(), size.ws_col));
  drawn_ = runs_.size() + 1;
}

void SweepBoard::clear() {
  if (drawn_ > 0) write_all(fd_, fmt::format("\x1b[{}A\x1b[J", drawn_));
  drawn_ = 0;
}

void SweepBoard::print() {
  if (::isatty(STDOUT_FILENO) == 1) clear();
  fmt::print("{}", table());
  std::fflush(stdout);
}

std::size_t SweepBoard::failures() const {
  return std::size_t(std::ranges::count(outcomes_, SweepOutcome::State::failed, &SweepOutcome::state));
}

}  // namespace shoal::detail
