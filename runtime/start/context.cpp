#include <shoal/runtime/context.h>

#include <shoal/internal/runtime/os/pidfd.h>
#include <signal.h>

#include <algorithm>
#include <stdexcept>

namespace shoal {
namespace {

/// For a report that is on its way.
constexpr std::chrono::nanoseconds kReportPatience = std::chrono::seconds(1);

}  // namespace

ContextHandle::ContextHandle(std::vector<std::unique_ptr<ChildProcess>> children, std::chrono::nanoseconds grace_period)
    : ContextHandle(std::make_shared<State>(std::move(children), grace_period)) {}

ContextHandle::ContextHandle(std::shared_ptr<State> state) : state_(std::move(state)) {
  // If one cannot be started, the destructor of the state ends those that were.
  for (auto& child : state_->children) child->begin_start();
  for (auto& child : state_->children) child->finish_start();
}

ContextHandle::State& ContextHandle::state() const {
  if (!state_) throw std::invalid_argument("this ProcessContext was moved from: use the object that it was moved to");
  return *state_;
}

void ContextHandle::join() {
  const std::shared_ptr<State> held = state_;  // another thread may let go of its handle
  state().join(Deadline::never());
}

bool ContextHandle::join(std::chrono::nanoseconds timeout, std::optional<std::chrono::nanoseconds> grace_period) {
  const std::shared_ptr<State> held = state_;
  if (grace_period) state().grace_period = *grace_period;
  return state().join(Deadline::after(timeout));
}

void ContextHandle::terminate() {
  for (auto& child : state().children) child->signal(SIGTERM);
}

void ContextHandle::kill() {
  for (auto& child : state().children) child->signal(SIGKILL);
}

std::vector<pid_t> ContextHandle::pids() const {
  std::vector<pid_t> result;
  for (auto& child : state().children) result.push_back(child->pid());
  return result;
}

std::vector<int> ContextHandle::sentinels() const {
  std::vector<int> result;
  for (auto& child : state().children) result.push_back(child->sentinel());
  return result;
}

std::vector<std::optional<int>> ContextHandle::exitcodes() const {
  std::vector<std::optional<int>> result;
  for (auto& child : state().children)
    result.push_back(child->has_ended() ? std::optional(child->status().as_number()) : std::nullopt);
  return result;
}

bool ContextHandle::State::join(Deadline deadline) {
  if (!orderly.wait(children, grace_period, deadline, [this] { check_failures(); })) return false;
  check_all_succeeded();
  return true;
}

/// Those that this process has ended itself have no result either.
void ContextHandle::State::check_all_succeeded() {
  for (auto& child : children)
    if (auto failed = child->failure()) throw_failure(*failed);
}

void ContextHandle::State::check_failures() {
  std::lock_guard lock(mutex);
  if (!failure) {
    auto failed = [&] {
      std::vector<const ChildProcess*> found;
      for (auto& child : children)
        if (child->has_ended() && child->failed_by_itself()) found.push_back(child.get());
      std::ranges::stable_sort(
          found, [](const ChildProcess* a, const ChildProcess* b) { return a->failure_order() < b->failure_order(); });
      return found;
    };
    if (failed().empty()) return;
    // The first that was seen need not be the first that died: all that are dead by now are looked at.
    for (auto& child : children)
      if (is_readable(child->sentinel())) child->wait(Deadline::never());
    const ChildProcess* root = failed().front();
    // Whoever is on its way out by an exception of its own may be the cause: told to end, it would not say so.
    const Deadline patience = Deadline::after(std::min(kReportPatience, grace_period.load()));
    for (auto& child : children)
      if (child->is_unwinding()) child->wait(patience);
    end_processes(children, grace_period.load());
    const auto all = failed();
    // One that threw before may have ended later: what its destructors gave up let the others fail.
    for (const ChildProcess* child : all)
      if (child->has_reported() && root->has_reported() && child->failure_order() < root->failure_order()) root = child;
    LaterFailures later;
    for (const ChildProcess* child : all)
      if (child != root) later.push_back(child->failure());
    failure = make_root_cause(*root->failure(), std::move(later));
  }
  throw_failure(*failure);
}

}  // namespace shoal
