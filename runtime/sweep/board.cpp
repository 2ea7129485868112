#include <shoal/internal/runtime/sweep/board.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

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

std::size_t terminal_rows(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
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
  if (!on_terminal_) write_all(fd_, line_of(run));
}

std::string SweepBoard::line_of(std::size_t run) const {
  const auto over = std::size_t(std::ranges::count_if(
      outcomes_, [](const SweepOutcome& outcome) { return outcome.state != SweepOutcome::State::waiting; }));
  const SweepOutcome& outcome = outcomes_[run];
  std::string text;
  for (const config::Entry& entry : outcome.result.entries)
    text += fmt::format(", {} {}", entry.key, shown(entry.value));
  if (outcome.state == SweepOutcome::State::failed) text += ", " + outcome.error;
  return fmt::format("[{}/{}] {}: {}{}, {:.1f} s\n", over, runs_.size(), runs_[run].name, state_text(outcome), text,
                     outcome.seconds);
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
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other[i].size());
      text += i + 1 == row.size() ? "  " + row[i] : fmt::format("{}{:>{}}", i ? "  " : "", row[i], width);
    }
    text += "\n";
  }
  return text;
}

void SweepBoard::draw() {
  // A table that does not fit cannot be drawn over: it comes once, at the end.
  if (!on_terminal_ || runs_.size() + 2 > terminal_rows(fd_)) return;
  std::string text = drawn_ > 0 ? fmt::format("\x1b[{}A\x1b[J", drawn_) : "";
  text += table();
  drawn_ = runs_.size() + 1;
  write_all(fd_, text);
}

std::size_t SweepBoard::failures() const {
  return std::size_t(std::ranges::count(outcomes_, SweepOutcome::State::failed, &SweepOutcome::state));
}

}  // namespace shoal::detail
