#include <shoal/workers/train/process_group.h>

#include <shoal/internal/workers/train/backend/collective_process_group.h>
#include <shoal/internal/workers/train/backend/communicator_ranks.h>

namespace shoal {

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(Communicator communicator,
                                                          const ProcessGroupOptions& options) {
  return c10::make_intrusive<CollectiveProcessGroup>(c10::make_intrusive<CollectiveBackend>(
      std::make_unique<CommunicatorRanks>(std::move(communicator)), options.progress));
}

c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const ShmGroup& group, int rank,
                                                          const ProcessGroupOptions& options) {
  return make_process_group(group.join(rank), options);
}

}  // namespace shoal
