#include <shoal/runtime/process.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <signal.h>

#include <algorithm>
#include <stdexcept>

namespace shoal {

ChildSettings detail::child_settings(const ProcessOptions& options) {
  if (options.parts < 1 || options.part < 0 || options.part >= options.parts)
    throw std::invalid_argument(
        fmt::format("part {} of {} of the CPUs: give parts of at least 1, and a part from 0 to {}", options.part,
                    options.parts, std::max(1, options.parts) - 1));
  ChildSettings settings{.name = options.name,
                         .start_method = options.start_method,
                         .num_threads = asked_threads(options.num_threads, options.environment),
                         .fork_despite_threads = options.fork_despite_threads,
                         .prints_failure = true,
                         .cpus = {},
                         .environment = options.environment};
  if (options.binding != Binding::none) {
    const CpuPart part = cpu_parts(options.binding, options.parts, settings.num_threads)[std::size_t(options.part)];
    settings.cpus = part.cpus;
    settings.num_threads = part.threads;
  }
  return settings;
}

ProcessHandle::State::State(ChildSettings settings, const Ending& how, std::shared_ptr<Task> task) : ending(how) {
  child[0] = std::make_unique<ChildProcess>(std::move(settings), std::move(task));
}

ProcessHandle::State::~State() {
  if (!ending.daemon && child[0]->is_started() && child[0]->is_mine()) child[0]->wait(Deadline::never());
  end_processes(child, ending.grace_period);
}

ProcessHandle::State& ProcessHandle::state() const {
  if (!state_)
    throw std::invalid_argument(
        "this Process was closed or moved from: use the object that it was moved to, or close it later");
  return *state_;
}

void ProcessHandle::start() {
  child().begin_start();
  child().finish_start();
}

void ProcessHandle::join() { wait(Deadline::never()); }

bool ProcessHandle::join(std::chrono::nanoseconds timeout) { return wait(Deadline::after(timeout)); }

bool ProcessHandle::wait(Deadline deadline) {
  // Held for the time of the wait: another thread may let go of its handle.
  const std::shared_ptr<State> held = state_;
  if (child().wait(Deadline::now())) return true;
  return held->orderly.wait(held->child, held->ending.grace_period, deadline);
}

bool ProcessHandle::is_alive() const { return child().is_started() && !child().has_ended(); }

std::optional<int> ProcessHandle::exitcode() const {
  if (!child().is_started() || !child().has_ended()) return std::nullopt;
  return child().status().as_number();
}

void ProcessHandle::terminate() { child().signal(SIGTERM); }

void ProcessHandle::kill() { child().signal(SIGKILL); }

void ProcessHandle::send_signal(int number) { child().signal(number); }

void ProcessHandle::close() {
  if (!state_) return;
  if (is_alive())
    throw std::invalid_argument("close() of process '" + name() +
                                "', which still runs: join() it, or end it by terminate() or kill() first");
  state_.reset();
}

ChildProcess& ProcessHandle::check_succeeded() {
  join();
  if (auto failure = child().failure()) throw_failure(*failure);
  return child();
}

}  // namespace shoal
