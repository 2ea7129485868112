#include <shoal/internal/workers/train/backend/collective_process_group.h>

#include <fmt/format.h>

namespace shoal {

CollectiveProcessGroup::CollectiveProcessGroup(c10::intrusive_ptr<CollectiveBackend> backend)
    : SplitsGroup(backend->getRank(), backend->getSize()), backend_(std::move(backend)) {
  setBackend(c10::kCPU, BackendType::CUSTOM, backend_);
  setDefaultBackend(BackendType::CUSTOM);
}

c10::intrusive_ptr<c10d::ProcessGroup> CollectiveProcessGroup::split(
    const std::vector<int>& ranks, const std::optional<std::chrono::milliseconds>& timeout,
    const std::optional<std::string>& name, const std::optional<std::string>& description) {
  const std::string made_name = next_name();
  auto part = backend_->split_off(ranks, timeout);
  if (!part) return nullptr;
  auto group = c10::make_intrusive<CollectiveProcessGroup>(std::move(part));
  group->setGroupName(name.value_or(made_name));
  group->setGroupDesc(description.value_or(getGroupDesc() + ":split"));
  return group;
}

c10::intrusive_ptr<c10d::ProcessGroup> CollectiveProcessGroup::split_by(int color, int key) {
  const std::string name = next_name();
  auto part = backend_->split_off(color, key);
  if (!part) return nullptr;
  auto group = c10::make_intrusive<CollectiveProcessGroup>(std::move(part));
  group->setGroupName(name);
  group->setGroupDesc(getGroupDesc() + ":split");
  return group;
}

/// Counted on all ranks, also on those that are no members: names stay the same everywhere.
std::string CollectiveProcessGroup::next_name() {
  return fmt::format("{}:split:{}", getGroupName(), incrementSplitCount());
}

}  // namespace shoal
