#include <shoal/internal/runtime/sweep/board.h>

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

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

winsize terminal_size(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size : winsize{};
}

/// The first character of a text in UTF-8, and the bytes that it has; a byte that begins none is one.
std::pair<char32_t, std::size_t> first_character(std::string_view text) {
  const auto byte = [&](std::size_t at) { return char32_t(std::uint8_t(text[at])); };
  const std::size_t bytes = byte(0) < 0xc2 ? 1 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : byte(0) < 0xf5 ? 4 : 1;
  if (bytes == 1 || bytes > text.size()) return {byte(0), 1};
  char32_t code = byte(0) & (0xff >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {byte(0), 1};
    code = code << 6 | (byte(i) & 0x3f);
  }
  return {code, bytes};
}

/// Columns of a terminal. East Asian characters and pictures take two, marks that go over the letter before them none
/// (Unicode Standard Annex 11, to whole blocks).
std::size_t columns_of(char32_t code) {
  constexpr std::array<std::pair<char32_t, char32_t>, 10> kWide{{{0x1100, 0x115f},
                                                                 {0x2e80, 0x303e},
                                                                 {0x3041, 0xa4cf},
                                                                 {0xac00, 0xd7a3},
                                                                 {0xf900, 0xfaff},
                                                                 {0xfe30, 0xfe6f},
                                                                 {0xff00, 0xff60},
                                                                 {0xffe0, 0xffe6},
                                                                 {0x1f300, 0x1faff},
                                                                 {0x20000, 0x3fffd}}};
  if (code >= 0x300 && code <= 0x36f) return 0;
  return std::ranges::any_of(kWide, [&](auto block) { return block.first <= code && code <= block.second; }) ? 2 : 1;
}

/// A cell is in one line, and moves no cursor.
std::string printable(std::string_view text) {
  std::string printed;
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    printed += is_control || (bytes == 1 && code >= 0x80) ? "?" : text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return printed;
}

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    width += columns_of(code);
    text.remove_prefix(bytes);
  }
  return width;
}

/// Each line is at most so wide: a longer one would take a second line, which nobody counts.
std::string cut_lines(std::string_view text, std::size_t width) {
  std::string cut;
  std::size_t at = 0;
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    at = code == '\n' ? 0 : at + columns_of(code);
    if (at <= width) cut += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return cut;
}

std::string seconds_text(const SweepOutcome& outcome) {
  return outcome.seconds ? fmt::format("{:.1f}", *outcome.seconds) : std::string();
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
  if (!is_drawn())
    write(line_of(run));
  else if (outcomes_[run].state == SweepOutcome::State::failed)
    unsaid_.push_back(run);
}

std::string SweepBoard::line_of(std::size_t run) const {
  const SweepOutcome& outcome = outcomes_[run];
  std::string text;
  for (const config::Entry& entry : outcome.result.entries)
    text += fmt::format(", {} {}", entry.key, shown(entry.value));
  if (outcome.state == SweepOutcome::State::failed) text += ", " + outcome.error;
  if (outcome.seconds) text += fmt::format(", {} s", seconds_text(outcome));
  return fmt::format("[{}/{}] {}: {}{}\n", over_, runs_.size(), printable(runs_[run].name), state_text(outcome),
                     printable(text));
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
    row.push_back(seconds_text(outcome));
    row.push_back(state_text(outcome));
    rows.push_back(std::move(row));
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = printable(row[i]);
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

bool SweepBoard::is_drawn() const {
  // A table that does not fit cannot be drawn over: it comes once, at the end.
  if (!on_terminal_) return false;
  const winsize size = terminal_size(fd_);
  return runs_.size() + 2 <= size.ws_row && size.ws_col > 0;
}

void SweepBoard::draw() {
  if (!is_drawn()) return;
  clear();
  write(cut_lines(table(), terminal_size(fd_).ws_col));
  drawn_ = runs_.size() + 1;
}

void SweepBoard::clear() {
  if (drawn_ > 0) write(fmt::format("\x1b[{}A\x1b[J", drawn_));
  drawn_ = 0;
}

void SweepBoard::write(std::string_view text) {
  // A terminal may be held by Ctrl-S, and the reader of a pipe may be stopped: the sweep goes on, and the table at the end
  // has it all. Once nobody has read for a second, nobody is waited for again until somebody does.
  constexpr int kPatience = 1000;
  constexpr std::size_t kTakenAtOnce = 512;  // by a pipe or terminal that is writable at all
  while (!text.empty()) {
    pollfd reader{fd_, POLLOUT, 0};
    const int ready = ::poll(&reader, 1, is_stalled_ ? 0 : kPatience);
    if (ready < 0 && errno == EINTR) continue;
    is_stalled_ = ready == 0;
    if (ready <= 0) return;
    const ssize_t written = ::write(fd_, text.data(), std::min(text.size(), kTakenAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody will read
    text.remove_prefix(std::size_t(written));
  }
}

void SweepBoard::print() {
  if (::isatty(STDOUT_FILENO) == 1) clear();
  const std::string text = table();
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      // Each run's folder has its result, and the sweep is as it is.
      if (errno != EPIPE) write(fmt::format("the table cannot be written: {}\n", std::strerror(errno)));
      break;
    }
    rest.remove_prefix(std::size_t(written));
  }
  for (const std::size_t run : unsaid_)
    write(fmt::format("{}: failed, {}\n", printable(runs_[run].name), printable(outcomes_[run].error)));
  unsaid_.clear();
}

std::size_t SweepBoard::failures() const {
  return std::size_t(std::ranges::count(outcomes_, SweepOutcome::State::failed, &SweepOutcome::state));
}

}  // namespace shoal::detail
