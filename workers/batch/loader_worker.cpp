#include <shoal/internal/workers/batch/loader_worker.h>

namespace shoal::detail {

void call_init(const WorkerSettings& settings) {
  if (settings.init.build_id.empty()) return;
  reinterpret_cast<void (*)(int)>(find_function(settings.init))(settings.info.id);
}

std::uint64_t bytes_travelling_with(const Encoder& message) {
  const BlockMemory memory = Session::current().heap().memory();
  std::uint64_t bytes = 0;
  for (const HoldRef& handle : message.handles()) bytes += memory.header(handle.block).size;
  return bytes;
}

}  // namespace shoal::detail
