#include <shoal/runtime/context.h>
#include <shoal/runtime/pidfd.h>

#include <algorithm>

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
    auto failed = [&] {
      std::vector<const ChildProcess*> found;
      for (auto& child : children)
        if (child->has_ended() && child->failed_by_itself()) found.push_back(child.get());
      std::stable_sort(found.begin(), found.end(), [](const ChildProcess* a, const ChildProcess* b) {
        return a->failure_order() < b->failure_order();
      });
      return found;
    };
    if (failed().empty()) return;
    // The first that was seen need not be the first that died: all that are dead by now are looked at.
    for (auto& child : children)
      if (is_readable(child->sentinel())) child->wait(Deadline::never());
    const auto first = failed();
    end_processes(children, grace_period);
    LaterFailures later;
    for (const ChildProcess* child : failed())
      if (child != first.front()) later.push_back(child->failure());
    failure = make_root_cause(*first.front()->failure(), std::move(later));
  }
  throw_failure(*failure);
}

}  // namespace shoal
