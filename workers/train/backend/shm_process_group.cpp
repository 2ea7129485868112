#include <shoal/internal/workers/train/backend/shm_process_group.h>

#include <fmt/format.h>

namespace shoal {

ShmProcessGroup::ShmProcessGroup(c10::intrusive_ptr<ShmBackend> backend)
    : SplitsGroup(backend->getRank(), backend->getSize()), backend_(std::move(backend)) {
  setBackend(c10::kCPU, BackendType::CUSTOM, backend_);
  setDefaultBackend(BackendType::CUSTOM);
}

c10::intrusive_ptr<c10d::ProcessGroup> ShmProcessGroup::split(const std::vector<int>& ranks,
                                                              const std::optional<std::chrono::milliseconds>& timeout,
                                                              const std::optional<std::string>& name,
                                                              const std::optional<std::string>& description) {
  // Counted on all ranks, also on those that are no members: names stay the same everywhere.
  const std::string made_name = fmt::format("{}:split:{}", getGroupName(), incrementSplitCount());
  auto part = backend_->split_off(ranks, timeout);
  if (!part) return nullptr;
  auto group = c10::make_intrusive<ShmProcessGroup>(std::move(part));
  group->setGroupName(name.value_or(made_name));
  group->setGroupDesc(description.value_or(getGroupDesc() + ":split"));
  return group;
}

}  // namespace shoal
