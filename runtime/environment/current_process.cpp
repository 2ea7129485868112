#include <shoal/runtime/current_process.h>

#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace shoal {
namespace {

CurrentProcess& stored() {
  static CurrentProcess process;
  return process;
}

/// Of a process that is there at this moment; its slot may be another's the next.
RelatedProcess described(const ProcessRecord& process) {
  return {std::string(process.name, ::strnlen(process.name, sizeof process.name)), process.rank, process.pid};
}

}  // namespace

pid_t CurrentProcess::pid() noexcept { return ::getpid(); }

std::optional<RelatedProcess> parent_process() {
  if (!Session::exists()) return std::nullopt;
  SessionCore& session = SessionCore::current();
  const ProcessTag own = session.self_if_known();
  if (!own) return std::nullopt;
  const auto parent = ProcessTag::from_word(session.record(own.slot()).parent);
  if (!parent || !session.is_alive(parent)) return std::nullopt;
  return described(session.record(parent.slot()));
}

std::vector<RelatedProcess> active_children() {
  std::vector<RelatedProcess> result;
  if (!Session::exists()) return result;
  SessionCore& session = SessionCore::current();
  const ProcessTag own = session.self_if_known();
  if (!own) return result;
  for (std::uint32_t slot = 0, end = session.layout().slots_touched.load(); slot < end; ++slot) {
    const ProcessRecord& process = session.record(slot);
    if (ProcessRecord::state_of(process.state) != ProcessRecord::kAlive || process.parent != own.word()) continue;
    const ProcessTag child(slot, process.generation);
    RelatedProcess found = described(process);
    if (session.is_alive(child)) result.push_back(std::move(found));
  }
  return result;
}

const CurrentProcess& current_process() { return stored(); }

void detail::set_current_process(CurrentProcess process) { stored() = std::move(process); }

}  // namespace shoal
