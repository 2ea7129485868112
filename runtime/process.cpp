#include <shoal/runtime/process.h>
#include <signal.h>

#include <stdexcept>

namespace shoal {

ProcessHandle::ProcessHandle(ChildSettings settings, std::chrono::nanoseconds grace_period, std::shared_ptr<Task> task)
    : child_(std::make_unique<ChildProcess>(std::move(settings), std::move(task))), grace_period_(grace_period) {}

ProcessHandle::~ProcessHandle() {
  if (child_) end_processes({&child_, 1}, grace_period_);
}

ChildProcess& ProcessHandle::child() const {
  if (!child_) throw std::invalid_argument("this Process was moved from: use the object that it was moved to");
  return *child_;
}

void ProcessHandle::start() {
  child().begin_start();
  child().finish_start();
}

void ProcessHandle::join() { child().wait(Deadline::never()); }

bool ProcessHandle::join(std::chrono::nanoseconds timeout) { return child().wait(Deadline::after(timeout)); }

bool ProcessHandle::is_alive() { return child().is_started() && !child().has_ended(); }

std::optional<int> ProcessHandle::exitcode() {
  if (!child().is_started() || !child().has_ended()) return std::nullopt;
  return child().status().as_number();
}

void ProcessHandle::terminate() { child().signal(SIGTERM); }

void ProcessHandle::kill() { child().signal(SIGKILL); }

ChildProcess& ProcessHandle::check_succeeded() {
  join();
  if (auto failure = child().failure()) throw_failure(*failure);
  return child();
}

}  // namespace shoal
