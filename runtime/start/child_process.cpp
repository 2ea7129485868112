#include <shoal/internal/runtime/start/child_process.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/child/descendants.h>
#include <shoal/internal/runtime/child/ended.h>
#include <shoal/internal/runtime/crash/oom_kills.h>
#include <shoal/internal/runtime/environment/local_rank.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/log.h>
#include <shoal/ipc/trace_span.h>
#include <shoal/runtime/init.h>
#include <signal.h>
#include <unistd.h>

#include <stdexcept>

namespace shoal {

ChildProcess::ChildProcess(ChildSettings settings, std::shared_ptr<Task> task)
    : settings_(std::move(settings)), task_(std::move(task)), returns_value_(task_->returns_value()) {}

ChildProcess::~ChildProcess() = default;

void ChildProcess::begin_start() {
  if (started_ || under_way_)
    throw std::invalid_argument(fmt::format("process '{}' was started already: each starts once", settings_.name));
  check_initialized();
  request_start();
}

void ChildProcess::request_start() {
  traced_since_ = trace::is_on() ? trace::now() : 0;
  starter_ = make_starter(settings_.start_method);
  StartHeader header{.name = settings_.name,
                     .rank = settings_.rank,
                     .nprocs = settings_.nprocs,
                     .works_for = detail::children_work_for(),
                     .num_threads = settings_.num_threads,
                     .prints_failure = settings_.prints_failure,
                     .start_method = get_start_method(),
                     .cpus = settings_.cpus.empty() ? starter_->open_cpus() : settings_.cpus,
                     .environment = settings_.environment,
                     .entry = {},
                     .function = {}};
  channel_ = Channel::create();
  record_ = CrashRecordBlock::create();
  if (!starter_->copies_this_process()) {
    header.entry = name_function(reinterpret_cast<AnyFunction>(task_->entry()));
    if (AnyFunction function = task_->function()) header.function = name_function(function);
    Encoder message;
    Channel::begin(message, ChannelMessage::kStart);
    encode(message, header);
    task_->encode_arguments(message);
    channel_->send(message);
  }
  lent_ = {channel_->lend(), record_->lend()};
  watch_oom_kills();
  note_child_started();
  log_debug("starting '{}' (rank {}) by {}", settings_.name, settings_.rank, method_name(settings_.start_method));
  try {
    process_ = starter_->begin({settings_, header, *task_, lent_});
  } catch (...) {
    abandon_start();
    throw;
  }
  under_way_ = true;
  if (process_.pid != 0) note_started();
}

void ChildProcess::note_started() {
  started_ = true;
  log_info("started '{}' (rank {}) by {}: pid {}", settings_.name, settings_.rank, method_name(settings_.start_method),
           process_.pid);
  if (traced_since_ != 0)
    trace::write(TraceKind::kStart, traced_since_, trace::now(), settings_.name, 0, std::uint64_t(process_.pid));
}

void ChildProcess::abandon_start() noexcept {
  lent_.take_back();
  channel_.reset();
  record_.reset();
}

void ChildProcess::finish_start() {
  for (bool again = false; std::exchange(under_way_, false); again = true) {
    try {
      starter_->finish(process_);
      if (!started_) note_started();
    } catch (const StartLost& lost) {
      abandon_start();
      if (again) throw;
      log_info("starting '{}' once more: {}", settings_.name, lost.what());
      request_start();
    } catch (...) {
      if (!started_) abandon_start();
      throw;
    }
  }
  if (started_) task_.reset();
}

void ChildProcess::check_started(const char* operation) const {
  if (!started_)
    throw std::invalid_argument(
        fmt::format("{} of process '{}', which was not started: call start() first", operation, settings_.name));
  if (!is_mine())
    throw std::invalid_argument(
        fmt::format("{} of process '{}', which is a child of process {} and not of this one ({})", operation,
                    settings_.name, owner_.pid(), ::getpid()));
}

pid_t ChildProcess::pid() const {
  check_started("pid()");
  return process_.pid;
}

int ChildProcess::sentinel() const {
  check_started("sentinel()");
  return process_.process.get();
}

int ChildProcess::end_descriptor() const { return starter_->end_descriptor(process_); }

bool ChildProcess::wait(Deadline deadline) {
  if (ended_) return true;
  check_started("join()");
  int descriptor = end_descriptor();
  if (!wait_readable({&descriptor, 1}, deadline)) return false;
  std::lock_guard lock(mutex_);
  if (!ended_) collect(deadline);
  return ended_;
}

void ChildProcess::collect(Deadline deadline) {
  const std::optional<ExitStatus> status = starter_->collect(process_, deadline);
  if (!status) return;
  status_ = *status;
  give_back_after(process_.pid, lent_);
  try {
    read_report();
  } catch (const std::exception&) {
    result_.reset();  // bytes that are no report; the status says what happened
  }
  channel_.reset();
  if (status_.unknown && result_) status_ = {};
  if (status_.unknown && report_) status_ = {.code = 1};
  judge();
  log_info("'{}' (pid {}) {}", settings_.name, process_.pid,
           status_.signal != 0 ? fmt::format("was ended by {}", signal_name(status_.signal))
           : status_.unknown   ? std::string("ended, and nobody knows how")
                               : fmt::format("exited with code {}", status_.code));
  record_.reset();
  ended_ = true;
}

void ChildProcess::read_report() {
  message_ = channel_->receive();
  if (!message_) return;
  result_.emplace(std::move(*message_).decoder());
  auto kind = decode<ChannelMessage>(*result_);
  if (kind == ChannelMessage::kResult) return;
  if (kind == ChannelMessage::kFailure) report_ = decode<FailureReport>(*result_);
  result_.reset();  // else it is the start message: the child died before it took it
}

void ChildProcess::judge() {
  CrashReport crash = record_->read();
  std::vector<ExceptionSummary> raised;
  if (report_) {
    raised = report_->raised;
  } else if (crash.kind == CrashKind::kException && crash.phase == ChildPhase::kReturned) {
    raised = {{crash.type, crash.message}};  // the report did not get through
  } else if (status_.succeeded() && (result_ || !returns_value_)) {
    return;  // exit(0) says that all is well, but does not make a result
  }
  failure_ = failure_of({settings_.name, settings_.rank, process_.pid, settings_.start_method}, status_,
                        std::move(crash), std::move(raised), killed_here_);
}

bool ChildProcess::is_unwinding() {
  std::lock_guard lock(mutex_);
  return started_ && !ended_ && record_ && record_->has_thrown();
}

void ChildProcess::signal(int number) noexcept {
  if (!started_ || ended_ || !is_mine() || is_readable(process_.process.get())) return;
  if (number == SIGKILL || number == SIGTERM) {
    told_to_end_ = true;
    if (number == SIGKILL) killed_here_ = true;
    log_info("sending {} to '{}' (pid {})", signal_name(number), settings_.name, process_.pid);
  }
  send_signal(process_.process, number);
}

bool ChildProcess::failed_by_itself() const {
  return failure_ && !(told_to_end_ && (status_.signal == SIGTERM || status_.signal == SIGKILL));
}

std::pair<int, std::int64_t> ChildProcess::failure_order() const {
  // A process that was killed says nothing, and others then raise because it is gone.
  if (!report_) return {status_.signal != 0 ? 0 : 1, failure_->time()};
  return {2, report_->time};
}

void OrderlyWait::look_for_stop(std::span<const std::unique_ptr<ChildProcess>> children,
                                std::chrono::nanoseconds grace_period) {
  if (stop_requests() == requests_before_) return;
  std::lock_guard lock(mutex_);
  if (!patience_) {
    patience_ = Deadline::after(grace_period);
    for (auto& child : children) {
      child->signal(SIGTERM);
      child->signal(SIGCONT);
    }
  }
  if (stop_is_urgent() || patience_->passed())
    for (auto& child : children) child->signal(SIGKILL);
}

namespace {

/// How late a signal is seen that another thread has got; see kLivenessSlice.
constexpr std::chrono::milliseconds kSlice{100};

}  // namespace

bool OrderlyWait::wait(std::span<const std::unique_ptr<ChildProcess>> children, std::chrono::nanoseconds grace_period,
                       Deadline deadline, const std::function<void()>& ended) {
  HeldStop held;
  std::vector<int> running;
  for (;;) {
    running.clear();
    for (auto& child : children)
      if (!child->has_ended()) running.push_back(child->end_descriptor());
    if (ended) ended();
    if (running.empty()) return true;
    look_for_stop(children, grace_period);
    const auto left = deadline.left(kSlice);
    wait_readable(running, Deadline::after(left));
    if (deadline.passed() && !wait_readable(running, Deadline::now())) return false;
  }
}

void end_processes(std::span<const std::unique_ptr<ChildProcess>> children,
                   std::chrono::nanoseconds grace_period) noexcept {
  for (auto& child : children) {
    try {
      child->finish_start();
    } catch (const std::exception&) {
      // Then there is nothing to end.
    }
    child->signal(SIGTERM);
    child->signal(SIGCONT);  // a stopped process could not act on the other
  }
  const auto all_end = [&](Deadline deadline) {
    bool all = true;
    for (auto& child : children)
      if (child->is_started() && child->is_mine()) all = child->wait(deadline) && all;
    return all;
  };
  // Whoever asks this process to stop a second time does not want the rest of the grace period.
  const Deadline patience = Deadline::after(grace_period);
  while (!all_end(Deadline::after(patience.left(kSlice))) && !patience.passed() && !stop_is_urgent()) continue;
  for (auto& child : children) child->signal(SIGKILL);
  all_end(Deadline::never());
}

}  // namespace shoal
