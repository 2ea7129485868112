#include <shoal/workers/data/worker_info.h>

namespace shoal {
namespace {
std::optional<WorkerInfo> worker_info;
}

std::optional<WorkerInfo> get_worker_info() { return worker_info; }

void detail::set_worker_info(const WorkerInfo& info) { worker_info = info; }

}  // namespace shoal
