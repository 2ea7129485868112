#include <shoal/internal/workers/train/ddp/group_passes.h>

#include <shoal/internal/workers/train/backend/collective_process_group.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal {

GroupsPass pass_of_new_model(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
  const auto* own = dynamic_cast<const CollectiveProcessGroup*>(process_group.get());
  if (!own) return {};
  return {.pass = {.model = own->backend().number_model()}, .group = &own->backend()};
}

std::uint64_t mismatches_in(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
  const auto* own = dynamic_cast<const CollectiveProcessGroup*>(process_group.get());
  return own ? own->backend().mismatches() : 0;
}

}  // namespace shoal
