// A process that this one starts: from the wish to its end. What Process and ProcessContext are made of.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/fork/owner_process.h>
#include <shoal/internal/runtime/crash/record.h>
#include <shoal/internal/runtime/start/starter.h>
#include <shoal/runtime/exit_status.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/stop.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// One child. Belongs to the process that made the object: in a forked copy of that process it does
/// nothing. Threads: started by one; after that any may call, at once. Its destructor does not end the
/// child: whoever owns it calls end_processes() first. However the child dies, has_ended() and wait()
/// find out from the kernel, give back what it had in shared memory, and leave no zombie.
class ChildProcess {
 public:
  ChildProcess(ChildSettings settings, std::shared_ptr<Task> task);
  ChildProcess(const ChildProcess&) = delete;
  ~ChildProcess();

  /// Starting in two steps lets several starts overlap; see Starter.
  void begin_start();
  void finish_start();
  bool is_started() const { return started_; }

  const ChildSettings& settings() const { return settings_; }
  /// These throw std::invalid_argument before the start.
  pid_t pid() const;
  int sentinel() const;

  /// Readable when wait() would not wait.
  int end_descriptor() const;
  /// False if the deadline came first.
  bool wait(Deadline deadline);
  bool has_ended() { return wait(Deadline::now()); }
  /// Whether it runs, and has thrown what ends it.
  bool is_unwinding();
  /// Does nothing to a process that has ended, or was not started.
  void signal(int number) noexcept;

  /// These are for after the end.
  const ExitStatus& status() const { return status_; }
  /// Null if it did what it was started for.
  std::shared_ptr<const ProcessFailed> failure() const { return failure_; }
  /// It failed, and not because this process ended it.
  bool failed_by_itself() const;
  /// Of several failed children, the one whose value is smallest is the likeliest cause of the others.
  std::pair<int, std::int64_t> failure_order() const;
  /// It has said what it threw, and so when.
  bool has_reported() const { return bool(report_); }
  /// The encoded result. To be read once.
  Decoder& result() { return *result_; }
  /// False in a forked copy of the process that made the object.
  bool is_mine() const { return owner_.is_this(); }

 private:
  void request_start();
  void note_started();
  void abandon_start() noexcept;
  void check_started(const char* operation) const;
  void collect(Deadline deadline);
  void read_report();
  void judge();

  ChildSettings settings_;
  std::shared_ptr<Task> task_;  // until the child has its arguments: what they hold is not held any longer here
  const bool returns_value_;
  const OwnerProcess owner_;
  std::optional<Channel> channel_;
  std::optional<CrashRecordBlock> record_;
  ChildBlocks lent_;
  std::unique_ptr<Starter> starter_;
  bool under_way_ = false;  // between the two steps
  StartedProcess process_;
  std::uint64_t traced_since_ = 0;
  std::atomic<bool> started_{false}, ended_{false}, told_to_end_{false}, killed_here_{false};

  std::mutex mutex_;  // of what follows, until ended_
  ExitStatus status_;
  std::optional<FailureReport> report_;
  std::shared_ptr<const ProcessFailed> failure_;
  std::optional<Received> message_;  // where result_ reads
  std::optional<Decoder> result_;
};

/// Waits until all have ended. If this process is asked to stop meanwhile (see stop.h), it ends them first: once, in
/// order. Meanwhile: since this object came, or before, since its thread holds up stops.
class OrderlyWait {
 public:
  OrderlyWait() : requests_before_(stop_requests_before_hold()) {}
  /// Calls ended() whenever some have ended; what that throws comes out. False if the deadline came first.
  bool wait(std::span<const std::unique_ptr<ChildProcess>> children, std::chrono::nanoseconds grace_period,
            Deadline deadline, const std::function<void()>& ended = {});

 private:
  void look_for_stop(std::span<const std::unique_ptr<ChildProcess>> children, std::chrono::nanoseconds grace_period);

  const int requests_before_;
  std::mutex mutex_;  // of what follows
  std::optional<Deadline> patience_;
};

/// SIGTERM for those that still run, SIGKILL after the grace period for those that then still do, and waits
/// for all of them.
void end_processes(std::span<const std::unique_ptr<ChildProcess>> children,
                   std::chrono::nanoseconds grace_period) noexcept;

}  // namespace shoal
