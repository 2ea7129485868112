#include <shoal/internal/runtime/command/run/launch.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/runtime/command/job/rank_environment.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace shoal::command {
namespace {

std::chrono::nanoseconds seconds(double value) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
}

const char* name_of(RendezvousEvent::Kind kind) {
  static constexpr const char* kNames[] = {"a round", "start again", "all is done", "the run has failed", "it is lost"};
  return kNames[int(kind)];
}

}  // namespace

Launch::Launch(RunOptions options, std::string program_path, std::unique_ptr<Rendezvous> rendezvous,
               const RunMark& mark)
    : options_(std::move(options)),
      path_(std::move(program_path)),
      rendezvous_(std::move(rendezvous)),
      mark_(mark),
      signals_(options_.signals),
      logs_(options_.log_dir, options_.run_id),
      nothing_(lift(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)))) {
  if (!nothing_) throw SystemError("opening /dev/null", errno);
}

void Launch::say(const std::string& line) const {
  const std::string text = fmt::format("shoal: {}\n", line);
  [[maybe_unused]] auto written = ::write(2, text.data(), text.size());  // in one piece, among the ranks' lines
}

RunResult Launch::run() {
  log_info("run {}: joins the rendezvous with {} ranks of {}", options_.run_id, options_.ranks, path_);
  rendezvous_->join();
  while (state_ != State::kOver) {
    collect_ended();
    if (state_ == State::kStopping && !any_running()) after_stop();
    // What has been done up to here may be answered already.
    if (auto event = rendezvous_->next_event())
      handle(*event);
    else if (state_ != State::kOver)
      wait();
  }
  ranks_.clear();
  mark_.kill_all();
  Session::current().reclaim_all();
  drain_output();
  log_info("run {} ends with code {}", options_.run_id, result_.exit_code);
  if (!failed_.empty()) {
    print_summary();
    result_.program_exit = failed_.front()->exit_number();
    result_.cause = failed_.front()->failure()->what();
  }
  return result_;
}

/// What the ranks have written is in the pipes by now. It may still take its time to be written here: to a terminal
/// that takes nothing. A signal ends that.
void Launch::drain_output() {
  relay_.finish();
  const int descriptors[] = {signals_.descriptor(), relay_.finished()};
  while (!is_readable(relay_.finished())) {
    wait_readable(descriptors, Deadline::never());
    while (const auto signal = signals_.next()) {
      if (signal == SIGTSTP) {
        ::raise(SIGSTOP);
        continue;
      }
      log_info("got SIG{} while output is being written: gives the rest up", ::sigabbrev_np(*signal));
      failed_.clear();  // the summary would wait as well
      finish(128 + *signal, *signal);
      relay_.abandon();
      return;
    }
  }
  relay_.drain();
}

bool Launch::any_running() const {
  return std::ranges::any_of(ranks_, [](const auto& rank) { return !rank->has_ended(); });
}

void Launch::wait() {
  std::vector<int> descriptors{signals_.descriptor(), rendezvous_->descriptor()};
  for (const auto& rank : ranks_)
    if (!rank->has_ended()) descriptors.push_back(rank->descriptor());
  wait_readable(descriptors, patience_ ? *patience_ : Deadline::after(std::chrono::hours(1)));
  while (const auto signal = signals_.next()) handle_signal(*signal);
  kill_late_ranks();
}

void Launch::handle(const RendezvousEvent& event) {
  using Kind = RendezvousEvent::Kind;
  if (ends_with_) return;  // told to end, here
  log_info("the rendezvous says: {}{}{}", name_of(event.kind), event.reason.empty() ? "" : ": ", event.reason);
  switch (event.kind) {
    case Kind::kRound:
      start_round(event.round);
      return;
    case Kind::kRestart:
      say(fmt::format("all ranks are started again: {}", event.reason));
      rejoins_ = true;
      stop_ranks(SIGTERM);
      return;
    case Kind::kFinished:
      finish(0);
      return;
    case Kind::kFailed:
    case Kind::kLost:
      // The summary comes when the others have ended, which may take them a while.
      if (failed_.empty()) say(event.reason + (any_running() ? ": the other ranks are told to end" : ""));
      ends_with_ = RunResult{event.kind == Kind::kFailed ? ExitCode::kFailed : ExitCode::kNoRendezvous, 0};
      stop_ranks(SIGTERM);
      return;
  }
}

void Launch::handle_signal(int signal) {
  log_info("got SIG{}", ::sigabbrev_np(signal));
  if (signal == SIGTSTP) {
    // They are in groups of their own, so the terminal has not stopped them.
    for (const auto& rank : ranks_) rank->signal(SIGSTOP);
    ::raise(SIGSTOP);
    for (const auto& rank : ranks_) rank->signal(SIGCONT);
    return;
  }
  ++signals_seen_;
  if (signals_seen_ > 1 && signal == SIGINT) {
    for (const auto& rank : ranks_) rank->signal(SIGKILL);
    patience_.reset();
    return;
  }
  if (signals_seen_ > 1) return;  // several SIGTERM are one: several may send it
  ends_with_ = RunResult{128 + signal, signal};
  rendezvous_->leave(fmt::format("a launcher was ended by SIG{}", ::sigabbrev_np(signal)));
  failed_.clear();
  stop_ranks(signal);
}

void Launch::stop_ranks(int signal) {
  if (state_ == State::kOver) return;
  const bool again = state_ == State::kStopping;
  state_ = State::kStopping;
  if (again) return;                // they have been told
  constexpr double kForGood = 1e9;  // 31 years: "inf" is a number, and no time
  patience_ = Deadline::after(seconds(std::min(options_.shutdown_timeout, kForGood)));
  log_info("tells {} ranks to end by SIG{}; SIGKILL follows after {} s",
           std::ranges::count_if(ranks_, [](const auto& rank) { return !rank->has_ended(); }), ::sigabbrev_np(signal),
           options_.shutdown_timeout);
  for (const auto& rank : ranks_)
    if (!rank->has_ended()) rank->signal(signal);
}

void Launch::kill_late_ranks() {
  if (!patience_ || !patience_->passed()) return;
  patience_.reset();
  std::vector<int> late;
  for (const auto& rank : ranks_)
    if (!rank->has_ended()) {
      late.push_back(rank->rank());
      rank->signal(SIGKILL);
    }
  if (!late.empty())
    say(fmt::format("rank {} did not end within {} s and is killed", fmt::join(late, ", "), options_.shutdown_timeout));
}

void Launch::collect_ended() {
  for (const auto& rank : ranks_)
    if (!rank->has_ended() && is_readable(rank->descriptor())) {
      rank->collect();
      log_info("rank {} has ended: {}", rank->rank(), rank->failure() ? rank->failure()->what() : "exit code 0");
    }
  if (state_ != State::kRunning || reported_) return;
  judge_failures();
  if (reported_ || any_running()) return;
  reported_ = true;
  log_info("all ranks of this host have ended well");
  rendezvous_->report_success();
}

/// All that are dead at this moment are looked at: the first one seen need not be the first that died.
void Launch::judge_failures() {
  const RankProcess* cause = nullptr;
  for (const auto& rank : ranks_)
    if (rank->failed_by_itself() && (!cause || rank->failure_order() < cause->failure_order())) cause = rank.get();
  if (!cause) return;
  reported_ = true;
  const std::string what = cause->failure()->what();
  log_info("reports a failure to the rendezvous: {}", what);
  stop_ranks(SIGTERM);
  rendezvous_->report_failure(what);
}

void Launch::after_stop() {
  patience_.reset();
  if (!ends_with_ || ends_with_->signal == 0)
    for (auto& rank : ranks_)
      if (rank->failed_by_itself()) failed_.push_back(std::move(rank));
  std::ranges::sort(failed_, [](const auto& a, const auto& b) { return a->failure_order() < b->failure_order(); });
  ranks_.clear();
  if (ends_with_) {
    finish(ends_with_->exit_code, ends_with_->signal);
  } else if (rejoins_) {
    log_info("all ranks of this start are gone: joins the rendezvous again");
    rejoins_ = false;
    failed_.clear();
    mark_.kill_all();
    Session::current().reclaim_all();
    state_ = State::kJoining;
    rendezvous_->join();
  }
  // Else the rendezvous has not answered yet.
}

void Launch::finish(int exit_code, int signal) {
  state_ = State::kOver;
  result_ = {.exit_code = exit_code, .signal = signal};
}

void Launch::start_round(const Round& round) {
  round_ = round;
  reported_ = false;
  failed_.clear();
  log_info("start {}: host {} of {}, ranks {} to {} of {}, MASTER_ADDR {}:{}, {} restarts so far", round.number,
           round.node_rank, round.node_count, round.first_rank, round.first_rank + options_.ranks - 1, round.world_size,
           round.master_addr, round.master_port, round.restart_count);
  if (round.world_size > options_.ranks || round.number > 0)
    say(fmt::format("start {}: this host is {} of {}, with ranks {} to {} of {}", round.number, round.node_rank,
                    round.node_count, round.first_rank, round.first_rank + options_.ranks - 1, round.world_size));
  state_ = State::kRunning;
  const std::vector<CpuPart> parts = cpu_parts(options_.binding, options_.ranks, 0);
  try {
    for (int i = 0; i < options_.ranks; ++i) ranks_.push_back(start_rank(i, parts[std::size_t(i)]));
  } catch (const Error& error) {
    say(error.what());
    rendezvous_->leave(error.what());
    ends_with_ = RunResult{dynamic_cast<const ExecRefused*>(&error) ? ExitCode::kNoExec : ExitCode::kFailed, 0};
    stop_ranks(SIGTERM);
  }
}

void Launch::prepare_stream(bool is_error, Streams redirected, Streams teed, int local_rank, RankStart& start,
                            std::vector<Fd>& descriptors) {
  const int number = is_error ? 2 : 1;
  const bool to_file = is_error ? redirected.error : redirected.output, both = is_error ? teed.error : teed.output;
  const bool shown = options_.shown.empty() || std::ranges::find(options_.shown, local_rank) != options_.shown.end();
  LogFolder::File log;
  if (to_file || both) {
    log = logs_.open(round_.number, local_rank, is_error ? "stderr.log" : "stdout.log");
    if (is_error) start.log = log.path;
  }
  auto& standard = start.standard[std::size_t(number)];
  if (to_file && !both) {
    standard = log.file.get();
    descriptors.push_back(std::move(log.file));
  } else if (options_.ranks == 1 && round_.world_size == 1 && !both && shown) {
    return;  // the launcher's own: a terminal stays a terminal
  } else {
    PipeEnds pipe = make_pipe();
    auto tail = is_error ? std::make_shared<OutputTail>() : nullptr;
    if (is_error) start.error_tail = tail;
    relay_.add({std::move(pipe.reading), shown ? number : -1, fmt::format("[rank{}]: ", start.rank),
                std::move(log.file), tail});
    standard = pipe.writing.get();
    descriptors.push_back(std::move(pipe.writing));
    start.output_is_piped = true;
  }
}

std::unique_ptr<RankProcess> Launch::start_rank(int local_rank, const CpuPart& part) {
  RankStart start{.rank = round_.first_rank + local_rank,
                  .local_rank = local_rank,
                  .path = path_,
                  .arguments = options_.program,
                  .environment = rank_environment(options_, round_, local_rank, part.threads),
                  .threads = part.threads,
                  .cpus = part.cpus,
                  .error_tail = nullptr,
                  .log = ""};
  start.environment.emplace_back(RunMark::kVariable, mark_.value());
  // One input cannot be read by several; a group that is not a terminal's own must not read from it at all.
  if (local_rank > 0 || ::isatty(0)) start.standard[0] = nothing_.get();
  std::vector<Fd> descriptors;  // the rank's ends
  for (const bool is_error : {false, true})
    prepare_stream(is_error, options_.redirects.of(local_rank), options_.tee.of(local_rank), local_rank, start,
                   descriptors);
  auto rank = std::make_unique<RankProcess>(std::move(start));
  log_info("started rank {} (local {}): pid {}", rank->rank(), local_rank, rank->pid());
  return rank;
}

void Launch::print_summary() const {
  std::string text = fmt::format("shoal: {} failed. The root cause:\n", fmt::join(options_.program, " "));
  auto append = [&](const std::string& report) {
    std::size_t at = 0;
    while (at < report.size()) {
      const auto end = report.find('\n', at);
      text += "  " + report.substr(at, end + 1 - at);
      at = end + 1;
    }
  };
  append(failed_.front()->report());
  if (failed_.size() > 1) text += "  Later:\n";
  for (std::size_t i = 1; i < failed_.size(); ++i) text += fmt::format("    {}\n", failed_[i]->failure()->what());
  if (!logs_.path().empty()) text += fmt::format("  All that was kept of the output is in {}\n", logs_.path());
  [[maybe_unused]] auto written = ::write(2, text.data(), text.size());
}

}  // namespace shoal::command
