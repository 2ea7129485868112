// shoal top: a live table of a session.
#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <shoal/internal/ipc/text/utf8_fit.h>
#include <shoal/internal/runtime/command/look/choose_session.h>
#include <shoal/internal/runtime/command/look/collectives.h>
#include <shoal/internal/runtime/command/look/session_json.h>
#include <shoal/internal/runtime/command/look/session_table.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace shoal::command {
namespace {

struct TopOptions {
  std::string session;
  double interval = 1;
  bool once = false, json = false, pss = false, all = false, collectives = false;
  std::size_t last = 20;
};

/// Rates are of the time between two looks; with --once of this much.
constexpr std::chrono::milliseconds kOnceOver{250};

volatile sig_atomic_t ended_by = 0;

/// All at once, so that a terminal shows no half of it. False if nobody reads any more.
bool write_all(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR && ended_by == 0) continue;
    if (written <= 0) return false;
    done += std::size_t(written);
  }
  return true;
}

/// The other screen of the terminal, keys without Return, and both as they were at the end, also if a signal ends
/// it.
class Screen {
 public:
  Screen() {
    struct sigaction action{};
    action.sa_handler = [](int number) { ended_by = number; };
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
    action.sa_handler = [](int) {};  // a new size: poll() ends, and the table is drawn anew
    ::sigaction(SIGWINCH, &action, nullptr);
    if (::isatty(STDIN_FILENO) && ::tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios raw = before_;
      raw.c_lflag &= ~tcflag_t(ICANON | ECHO);
      has_keys_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    write_all("\033[?1049h\033[?25l");
  }
  Screen(const Screen&) = delete;
  ~Screen() {
    write_all("\033[?25h\033[?1049l");
    if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  bool draw(const std::vector<std::string>& lines) const {
    std::string text = "\033[H";
    for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\r\n") + lines[i] + "\033[K";
    return write_all(text + "\033[J");
  }

  static TableOptions size() {
    TableOptions options;
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
      options = {size.ws_col, std::max<int>(size.ws_row, 4), true, false};
    return options;
  }

  /// The key that was pressed, 0 for none in that time.
  char key(std::chrono::milliseconds wait) const {
    pollfd keys{has_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    char letter = 0;
    if (::poll(&keys, 1, int(wait.count())) > 0 && ::read(STDIN_FILENO, &letter, 1) != 1) letter = 'q';
    return letter;
  }

 private:
  termios before_{};
  bool has_keys_ = false;
};

/// Looks again and again, each time with what changed since the last.
class Looker {
 public:
  Looker(FoundSession session, const TopOptions& options) : session_(std::move(session)), options_(options) { look(); }

  void look() {
    std::optional<SessionView> before = std::move(view_);
    view_ = look_at(session_.file, options_.pss ? Pss::kRead : Pss::kSkip);
    rates_ = before ? SessionRates(*before, *view_) : SessionRates();
  }
  const SessionView& view() const { return *view_; }
  const SessionRates& rates() const { return rates_; }
  bool is_over() const {
    return std::ranges::none_of(view_->processes,
                                [](auto& process) { return process.state == SeenProcess::State::kAlive; });
  }

 private:
  FoundSession session_;
  const TopOptions& options_;
  std::optional<SessionView> view_;
  SessionRates rates_;
};

std::string text_of(const Looker& looker, const TableOptions& options) {
  std::string text;
  for (const std::string& line : to_table(looker.view(), looker.rates(), options)) text += line + "\n";
  return text;
}

/// Not on a terminal, or as JSON: one look after the other.
int print(Looker& looker, const TopOptions& options, std::chrono::milliseconds interval) {
  ::signal(SIGPIPE, SIG_IGN);  // who reads no more ends this, without a word
  for (;;) {
    std::this_thread::sleep_for(options.once ? std::min(kOnceOver, interval) : interval);
    looker.look();
    TableOptions table = Screen::size();
    table.height = 0;
    table.colors = ::isatty(STDOUT_FILENO);
    table.channels = options.all;
    table.pss = options.pss;
    if (!table.colors) table.width = 120;
    const bool read = write_all(options.json ? to_json(looker.view(), looker.rates()) + "\n"
                                             : text_of(looker, table) + (options.once ? "" : "\n"));
    if (options.once || !read || looker.is_over()) return 0;
  }
}

int show(Looker& looker, const TopOptions& options, std::chrono::milliseconds interval) {
  const Screen screen;
  bool channels = options.all;
  auto next = std::chrono::steady_clock::now();
  for (;;) {
    TableOptions table = Screen::size();
    table.channels = channels;
    table.pss = options.pss;
    table.height -= 1;
    std::vector<std::string> lines = to_table(looker.view(), looker.rates(), table);
    lines.resize(std::size_t(std::max(table.height, 1)));
    lines.push_back("\033[2m" +
                    fit_columns(looker.is_over() ? "the session has ended   q quits"
                                                 : fmt::format("every {}   q quits, a {} shoal's own queues",
                                                               short_seconds(double(interval.count()) * 1e-3),
                                                               channels ? "hides" : "shows"),
                                std::size_t(table.width)) +
                    "\033[0m");
    if (ended_by != 0 || !screen.draw(lines)) return 0;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
    const char key = screen.key(std::max(left, std::chrono::milliseconds(0)));
    if (key == 'q' || ended_by != 0) return 0;
    if (key == 'a') channels = !channels;
    if (std::chrono::steady_clock::now() >= next) {
      if (!looker.is_over()) looker.look();
      next = std::chrono::steady_clock::now() + interval;
    }
  }
}

int top(const TopOptions& options) {
  const auto interval = std::chrono::milliseconds(std::llround(options.interval * 1000));
  if (options.collectives) {
    const FoundSession session = choose_session(options.session);
    write_all(options.json ? collectives_json(session.file, options.last) + "\n"
                           : collectives_text(session.file, options.last));
    return 0;
  }
  Looker looker(choose_session(options.session), options);
  if (options.json || options.once || !::isatty(STDOUT_FILENO)) return print(looker, options, interval);
  return show(looker, options, interval);
}

}  // namespace

void add_top(CLI::App& shoal, Action& action) {
  CLI::App* top_command = shoal.add_subcommand("top", "shows a session: processes, queues, who waits, memory");
  auto options = std::make_shared<TopOptions>();
  add_session_option(*top_command, options->session);
  top_command->add_option("-i,--interval", options->interval, "between two looks, from 0.05 to a day")
      ->check(CLI::Range(0.05, 86400.0).description(""))
      ->type_name("SECONDS")
      ->capture_default_str();
  top_command->add_flag("--once", options->once, "one look, with rates over a quarter of a second");
  top_command->add_flag("--json", options->json, "an object a line; its schema is in the page observing.md");
  top_command->add_flag("--pss", options->pss, "with the proportional set size, which costs the processes something");
  top_command->add_flag("-a,--all", options->all, "shoal's own queues too");
  top_command->add_flag("--collectives", options->collectives,
                        "one look at what the ranks of all groups called last, and who is missing");
  top_command->add_option("--last", options->last, "with --collectives: how many calls, up to 1000")
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("NUMBER")
      ->capture_default_str();
  top_command->footer(
      "It reads and changes nothing. On a terminal: q quits, a shows shoal's own queues.\n"
      "Waits of a second and more are yellow, full queues red.\n\n"
      "Exit codes:\n"
      "  0    it was shown\n"
      "  1    there is no such session, or there are several and none was named\n"
      "  2    wrong usage: an unknown option\n"
      "  4    an option has a bad value");
  top_command->callback([&action, options] { action = [options] { return top(*options); }; });
}

}  // namespace shoal::command
