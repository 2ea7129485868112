#include <shoal/workers/train/process_group.h>
#include <shoal/workers/train/shm_backend.h>

namespace shoal {

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(Communicator communicator) {
  auto process_group = c10::make_intrusive<c10d::ProcessGroup>(communicator.rank(), communicator.world_size());
  auto backend = c10::make_intrusive<ShmBackend>(std::move(communicator));
  process_group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  process_group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return process_group;
}

c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const ShmGroup& group, int rank) {
  return make_process_group(group.join(rank));
}

}  // namespace shoal
