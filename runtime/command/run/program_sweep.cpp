#include <shoal/internal/runtime/command/run/program_sweep.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/runtime/command/run/first_process.h>
#include <shoal/internal/runtime/command/run/launch_signals.h>
#include <shoal/internal/runtime/configure/kind_of.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/internal/runtime/exec/exec_program.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/internal/runtime/sweep/board.h>
#include <shoal/internal/runtime/sweep/plan.h>
#include <shoal/internal/runtime/sweep/run_folder.h>
#include <shoal/runtime/config_error.h>
#include <shoal/runtime/exit_status.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

namespace shoal::command {
namespace {

namespace fs = std::filesystem;
using detail::SweepOutcome;

/// Where a result is looked for: a program may write more than there is memory.
constexpr std::size_t kMostLogRead = 64 << 20;

/// A launcher that runs.
struct RunUnderWay {
  std::size_t run;
  Fd log;  // the program may put another file in its place
  StartedProcess launcher;
  std::chrono::steady_clock::time_point started;
};

Fd open_file(const fs::path& path, int flags) {
  Fd file = lift(Fd(::open(path.c_str(), flags | O_CLOEXEC, 0644)));
  if (!file) throw SystemError(fmt::format("opening {}", path.native()), errno);
  return file;
}

config::Node exit_node(int number) {
  config::Node node;
  node.kind = config::Node::Kind::integer;
  node.integer = number;
  return node;
}

SweepOutcome failed_run(const fs::path& folder, const ExitStatus& status) {
  SweepOutcome outcome{SweepOutcome::State::failed};
  int exit = status.as_number();
  outcome.error = fmt::format("the launcher ended with {}: see {}", exit, (folder / "log.txt").native());
  try {
    if (fs::exists(folder / "failure.toml"))
      for (const config::Entry& entry : config::read_toml(folder / "failure.toml").entries) {
        if (entry.key == "exit") exit = int(entry.value.integer);
        if (entry.key == "cause") outcome.error = entry.value.text;
      }
  } catch (const ConfigError&) {  // half a file is none: the launcher was killed
  }
  outcome.result.kind = config::Node::Kind::table;
  outcome.result.entries.push_back({"exit", {}, exit_node(exit)});
  std::ranges::replace(outcome.error, '\n', ' ');
  return outcome;
}

/// The result's file comes last: it says that the run is done.
SweepOutcome done_run(const fs::path& folder, const detail::SweepRun& run, const Fd& log, double seconds) {
  const auto text_of = [&](config::Node result) {
    result.entries.insert(result.entries.begin(), {"exit", {}, exit_node(0)});
    config::Node file, time;
    time.kind = config::Node::Kind::real;
    time.real = seconds;
    file.kind = config::Node::Kind::table;
    file.entries.push_back({"seconds", {}, std::move(time)});
    file.entries.push_back({"result", {}, std::move(result)});
    return config::toml_text(file);
  };
  std::string text;
  try {
    text = text_of(result_in(detail::last_lines_in(log, kMostLogRead)));
  } catch (const ConfigError&) {
    text = text_of(result_in(""));
  }
  detail::write_result(folder, run, text);
  return detail::outcome_of(text, "result.toml", SweepOutcome::State::done);
}

/// All launchers of a sweep. One thread.
class Launchers {
 public:
  Launchers(const std::vector<detail::SweepRun>& runs, const fs::path& folder, std::vector<int> signals)
      : runs_(runs),
        folder_(fs::absolute(folder)),
        nothing_(open_file("/dev/null", O_RDONLY)),
        signals_(std::move(signals)) {}

  void run(std::deque<std::size_t> waiting, std::size_t at_once, detail::SweepBoard& board) {
    board.draw();
    while (!under_way_.empty() || (!waiting.empty() && ended_by_ == 0)) {
      while (ended_by_ == 0 && !waiting.empty() && under_way_.size() < at_once && start(waiting.front(), board))
        waiting.pop_front();
      if (!under_way_.empty()) wait();
      while (const auto signal = signals_.next()) handle_signal(*signal);
      const std::size_t before = under_way_.size();
      std::erase_if(under_way_, [&](const RunUnderWay& one) { return collect(one, board); });
      if (under_way_.size() != before) board.draw();
    }
  }
  /// The signal that ended it; 0: none.
  int ended_by() const { return ended_by_; }

 private:
  /// One that cannot be started has failed; others run. False if there is no room for one more beside those that run.
  bool start(std::size_t run, detail::SweepBoard& board) {
    try {
      launch(run);
    } catch (const std::exception& error) {
      const auto* of_system = dynamic_cast<const SystemError*>(&error);
      if (of_system && !under_way_.empty())
        for (const int lack : {EMFILE, ENFILE, EAGAIN, ENOMEM})
          if (of_system->error_number() == lack) return false;
      board.set(run, detail::failed_by(error));
    }
    return true;
  }

  void launch(std::size_t run) {
    const fs::path folder = folder_ / runs_[run].name;
    detail::prepare_run_folder(folder, runs_[run]);
    fs::remove(folder / "failure.toml");
    Fd log = open_file(folder / "log.txt", O_RDWR | O_CREAT | O_TRUNC | O_APPEND);
    std::vector<std::string> environment =
        environment_with({{kFailureVariable, (folder / "failure.toml").native()}, {kFolderVariable, folder.native()}});
    // The file says already what variables said, and what the command line said over them.
    std::erase_if(environment, [](const std::string& each) { return each.starts_with("SHOAL_RUN_"); });
    StartedProcess launcher =
        exec_program({.path = "/proc/self/exe",
                      .arguments = {"shoal", "run", "--config", (folder / "config.toml").native()},
                      .environment = std::move(environment),
                      .standard = {nothing_.get(), log.get(), log.get()},
                      .own_group = true},
                     "shoal run", "is its file still there?");
    under_way_.push_back({run, std::move(log), std::move(launcher), std::chrono::steady_clock::now()});
  }

  void wait() const {
    std::vector<int> descriptors{signals_.descriptor()};
    for (const RunUnderWay& one : under_way_) descriptors.push_back(one.launcher.process.get());
    wait_readable(descriptors, Deadline::never());
  }

  void tell_all(int signal) const {
    for (const RunUnderWay& one : under_way_) send_signal(one.launcher.process, signal);
  }

  void handle_signal(int signal) {
    if (signal == SIGTSTP) return stop_all();
    tell_all(signal);
    tell_all(SIGCONT);  // one that somebody has stopped
    if (ended_by_ == 0) ended_by_ = signal;
  }

  /// They are in groups of their own, so the terminal has not stopped them. Each stops in its time, when its ranks have: one
  /// that did so only after the SIGCONT below would stay so.
  void stop_all() const {
    sigset_t continues, before, came;
    sigemptyset(&continues);
    sigaddset(&continues, SIGCONT);
    ::sigprocmask(SIG_BLOCK, &continues, &before);  // it continues this process as ever, and is seen
    tell_all(SIGTSTP);
    for (const Deadline patience = Deadline::after(std::chrono::seconds(10)); !patience.passed();) {
      if (std::ranges::all_of(under_way_, [](const RunUnderWay& one) { return has_stopped(one.launcher.process); }))
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (::sigpending(&came) != 0 || sigismember(&came, SIGCONT) == 0) ::raise(SIGSTOP);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    tell_all(SIGCONT);
  }

  /// Or ended.
  static bool has_stopped(const Fd& process) {
    siginfo_t seen{};
    return ::waitid(P_PIDFD, id_t(process.get()), &seen, WSTOPPED | WEXITED | WNOWAIT | WNOHANG) != 0 ||
           seen.si_pid != 0;
  }

  bool collect(const RunUnderWay& one, detail::SweepBoard& board) const {
    if (!is_readable(one.launcher.process.get())) return false;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - one.started).count();
    const ExitStatus status = reap(one.launcher.process);
    const fs::path folder = folder_ / runs_[one.run].name;
    if (!status.succeeded() && ended_by_ != 0) return true;  // it was told to: neither done nor failed
    SweepOutcome outcome;
    try {
      outcome = status.succeeded() ? done_run(folder, runs_[one.run], one.log, seconds) : failed_run(folder, status);
    } catch (const std::exception& error) {
      outcome = detail::failed_by(error);
    }
    outcome.seconds = seconds;
    board.set(one.run, std::move(outcome));
    return true;
  }

  const std::vector<detail::SweepRun>& runs_;
  const fs::path folder_;
  const Fd nothing_;  // /dev/null
  LaunchSignals signals_;
  std::vector<RunUnderWay> under_way_;
  int ended_by_ = 0;
};

}  // namespace

int sweep_program(const RunSettings& settings, const ProgramSweep& sweep) {
  const RunOptions options = options_of(settings);
  if (!options.is_one_host())
    throw std::invalid_argument(fmt::format("--sweep is for one host, and --nnodes {} for more", settings.nnodes.text));
  if (sweep.at_once < 1) throw std::invalid_argument(fmt::format("--at-once {}: must be from 1 on", sweep.at_once));
  const detail::SweepRequest request = detail::sweep_over(sweep.axes);
  const std::vector<detail::SweepRun> runs = detail::plan_sweep(request, [&](const std::vector<std::string>& values) {
    RunSettings one = settings;
    one.program.insert(one.program.end(), values.begin(), values.end());
    return config::toml_text(config::kind_of<RunSettings>().write(&one, nullptr));
  });
  ::signal(SIGCHLD, SIG_DFL);  // as in run_program()
  stay_behind_as_first_process();
  ::signal(SIGPIPE, SIG_IGN);  // a reader of the table that goes away ends no run
  const Fd taken = detail::take_sweep_folder(sweep.folder);
  detail::SweepBoard board(request.axes, runs, STDERR_FILENO);
  std::deque<std::size_t> waiting;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    if (SweepOutcome outcome; detail::is_kept(sweep.folder / runs[run].name, runs[run], outcome))
      board.set(run, std::move(outcome));
    else
      waiting.push_back(run);
  }
  int signal = 0;
  {
    Launchers launchers(runs, sweep.folder, options.signals);
    launchers.run(std::move(waiting), std::size_t(sweep.at_once), board);
    signal = launchers.ended_by();
  }
  board.print();
  if (signal != 0) {
    // As if nobody had been in between: a shell sees what ended this program.
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  return board.failures() > 0 ? 1 : 0;
}

}  // namespace shoal::command
