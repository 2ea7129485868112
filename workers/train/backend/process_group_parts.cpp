#include <shoal/workers/train/process_group_parts.h>

#include <fmt/format.h>
#include <shoal/internal/workers/train/backend/collective_process_group.h>
#include <shoal/workers/train/process_group_objects.h>

#include <stdexcept>

namespace shoal {
namespace {

CollectiveProcessGroup& own(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const char* what) {
  auto* found = dynamic_cast<CollectiveProcessGroup*>(group.get());
  if (!found)
    throw std::invalid_argument(fmt::format("{}: a group of backend '{}', which is none of shoal's own", what,
                                            group ? group->getBackendName() : "none"));
  return *found;
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> new_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                 const std::vector<int>& members) {
  return own(group, "new_group").split_by_list(members);
}

c10::intrusive_ptr<c10d::ProcessGroup> split(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int color, int key) {
  return own(group, "split").split_by(color, key);
}

std::shared_ptr<Mailbox> mailbox_of(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  return own(group, "messages of values").backend().mailbox();
}

}  // namespace shoal
