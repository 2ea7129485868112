#include <shoal/runtime/context.h>
#include <shoal/runtime/pidfd.h>

namespace shoal {

ContextHandle::ContextHandle(std::vector<std::unique_ptr<ChildProcess>> children, std::chrono::nanoseconds grace_period)
    : state_(new State{std::move(children), grace_period, {}, {}}) {
  // If one cannot be started, the destructor of the state ends those that were.
  for (auto& child : state_->children) child->begin_start();
  for (auto& child : state_->children) child->finish_start();
}

ContextHandle::~ContextHandle() = default;

void ContextHandle::join() { state_->join(Deadline::never()); }

bool ContextHandle::join(std::chrono::nanoseconds timeout) { return state_->join(Deadline::after(timeout)); }

std::vector<pid_t> ContextHandle::pids() const {
  std::vector<pid_t> result;
  for (auto& child : children()) result.push_back(child->pid());
  return result;
}

bool ContextHandle::State::join(Deadline deadline) {
  std::vector<int> running;
  for (;;) {
    running.clear();
    for (auto& child : children)
      if (!child->has_ended()) running.push_back(child->end_descriptor());
    check_failures();
    if (running.empty()) return true;
    if (!wait_readable(running, deadline)) return false;
  }
}

void ContextHandle::State::check_failures() {
  std::lock_guard lock(mutex);
  if (!failure) {
    const ChildProcess* first = nullptr;
    for (auto& child : children)
      if (child->has_ended() && child->failure() && (!first || child->failure_order() < first->failure_order()))
        first = child.get();
    if (!first) return;
    failure = first->failure();
    end_processes(children, grace_period);
  }
  std::rethrow_exception(failure);
}

}  // namespace shoal
