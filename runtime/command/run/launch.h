// One launcher's work, from the first start of its ranks to the end of the run.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/runtime/command/job/rendezvous.h>
#include <shoal/internal/runtime/command/job/run_options.h>
#include <shoal/internal/runtime/command/output/log_folder.h>
#include <shoal/internal/runtime/command/output/output_relay.h>
#include <shoal/internal/runtime/command/run/launch_signals.h>
#include <shoal/internal/runtime/command/run/leftovers.h>
#include <shoal/internal/runtime/command/run/rank_process.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace shoal::command {

/// What a run ends with.
struct RunResult {
  int exit_code = 0;
  int signal = 0;  // the launcher shall end by it, since it was told to; 0: none
  // Of the rank that is the root cause, if one has failed: its exit code or minus its signal, and one line for people.
  int program_exit = 0;
  std::string cause = {};
};

/// Starts the ranks of this host in each round that the rendezvous announces, watches them, ends them when one fails or
/// the rendezvous says so, and goes on until it is over. One thread, which waits for all of it at once. The ranks die
/// with this process, by the kernel's doing; when it ends in order, all that they have started is gone too.
class Launch {
 public:
  Launch(RunOptions options, std::string program_path, std::unique_ptr<Rendezvous> rendezvous, const RunMark& mark);
  RunResult run();

 private:
  enum class State {
    kJoining,   // no ranks; waiting for a round
    kRunning,   // ranks run, or all have ended well and others' may not have
    kStopping,  // told to end
    kOver,
  };

  void handle(const RendezvousEvent& event);
  void handle_signal(int signal);
  void start_round(const Round& round);
  std::unique_ptr<RankProcess> start_rank(int local_rank, const CpuPart& part);
  void prepare_stream(bool is_error, Streams redirected, Streams teed, int local_rank, RankStart& start,
                      std::vector<Fd>& descriptors);
  void collect_ended();
  void judge_failures();
  /// `signal` to all that run, now; SIGKILL after the shutdown timeout.
  void stop_ranks(int signal);
  void kill_late_ranks();
  void after_stop();
  void wait();
  void drain_output();
  bool any_running() const;
  void say(const std::string& line) const;
  void print_summary() const;
  void finish(int exit_code, int signal = 0);

  const RunOptions options_;
  const std::string path_;
  std::unique_ptr<Rendezvous> rendezvous_;
  const RunMark mark_;
  LaunchSignals signals_;
  OutputRelay relay_;
  LogFolder logs_;
  Fd nothing_;  // /dev/null

  State state_ = State::kJoining;
  Round round_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::vector<std::unique_ptr<RankProcess>>
      failed_;                          // of the last round, in the order of their likelihood to be the cause
  bool reported_ = false;               // this round's end
  bool rejoins_ = false;                // once the ranks have ended
  std::optional<RunResult> ends_with_;  // once the ranks have ended
  std::optional<Deadline> patience_;    // of kStopping; gone once SIGKILL was sent
  int signals_seen_ = 0;
  RunResult result_;
};

}  // namespace shoal::command
