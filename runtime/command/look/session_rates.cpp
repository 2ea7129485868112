#include <shoal/internal/runtime/command/look/session_rates.h>

#include <algorithm>

namespace shoal::command {

SessionRates::SessionRates(const SessionView& before, const SessionView& now) {
  if (now.time <= before.time) return;
  seconds_ = double(now.time - before.time) * 1e-9;
  for (const SeenProcess& process : now.processes) {
    const SeenProcess* old = before.process(process.slot);
    if (!old || old->generation != process.generation || old->pid != process.pid || !old->usage.found ||
        !process.usage.found || process.usage.cpu_ns < old->usage.cpu_ns)
      continue;
    cpu_[process.pid] = double(process.usage.cpu_ns - old->usage.cpu_ns) * 1e-7 / seconds_;
  }
  for (const SeenQueue& queue : now.queues) {
    const auto old = std::ranges::lower_bound(before.queues, queue.block, {}, &SeenQueue::block);
    // A block that was freed and used again has another queue, which starts at 0.
    if (old == before.queues.end() || old->block != queue.block || old->name != queue.name ||
        old->capacity != queue.capacity || queue.put < old->put || queue.got < old->got)
      continue;
    messages_[queue.block] = {double(queue.put - old->put) / seconds_, double(queue.got - old->got) / seconds_};
  }
}

std::optional<double> SessionRates::cpu_percent(const SeenProcess& process) const {
  const auto found = cpu_.find(process.pid);
  return found == cpu_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<SessionRates::Messages> SessionRates::messages(const SeenQueue& queue) const {
  const auto found = messages_.find(queue.block);
  return found == messages_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace shoal::command
