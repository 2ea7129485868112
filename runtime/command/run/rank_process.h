// One rank: a program that the launcher has started.
#pragma once

#include <shoal/internal/runtime/command/output/output_relay.h>
#include <shoal/internal/runtime/crash/record.h>
#include <shoal/internal/runtime/exec/exec_program.h>
#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/runtime/exit_status.h>
#include <shoal/runtime/failure.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shoal::command {

/// What a rank is started with.
struct RankStart {
  int rank = 0, local_rank = 0;
  std::string path;  // of the program's file
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;
  int threads = 0;  // in the environment, as its share of the CPUs; 0: the user's wish
  CpuSet cpus;
  std::array<int, 3> standard{0, 1, 2};
  bool output_is_piped = false;
  std::shared_ptr<OutputTail> error_tail;  // if its standard error is piped
  std::string log;                         // path of the file with its standard error; empty: none
};

/// A program of any kind; one of shoal's becomes a member of the launcher's session by itself. Leads a process group of
/// its own. Owned by the launcher, used by its one thread. It dies with the launcher.
class RankProcess {
 public:
  /// Throws SystemError if it cannot be started.
  explicit RankProcess(RankStart start);
  RankProcess(const RankProcess&) = delete;

  int rank() const { return start_.rank; }
  pid_t pid() const { return process_.pid; }
  /// Readable when it has ended.
  int descriptor() const { return process_.process.get(); }
  bool has_ended() const { return ended_; }
  /// After its end: reaps it, ends what it left in its process group, gives back what it had in the session.
  void collect();

  /// To it alone if it is a member of the session, since what it has started then is its own to tell; else to its
  /// process group, as a terminal would. SIGKILL goes to the group in any case. SIGTERM also continues it if it is
  /// stopped.
  void signal(int number) noexcept;

  bool succeeded() const { return ended_ && status_.succeeded(); }
  /// It failed, and not because it was told to end.
  bool failed_by_itself() const;
  /// Of several that have failed, that of the smallest value is the likeliest cause of the others.
  std::pair<int, std::int64_t> failure_order() const;
  /// These are for one that failed. The exit code, or minus the signal.
  int exit_number() const { return status_.as_number(); }
  std::shared_ptr<const ProcessFailed> failure() const { return failure_; }
  /// Several lines for people.
  std::string report() const;

 private:
  bool is_member() const;

  RankStart start_;
  CrashRecordBlock record_;
  ChildBlocks lent_;  // the record alone
  StartedProcess process_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::system_clock::time_point ended_at_;
  std::int64_t end_time_ = 0;  // of the steady clock
  bool ended_ = false;
  int told_to_end_by_ = 0;  // signal
  ExitStatus status_;
  std::shared_ptr<const ProcessFailed> failure_;
};

}  // namespace shoal::command
