// A c10d::ProcessGroup that has one of shoal's backends and nothing else.
#pragma once

#include <shoal/internal/workers/train/backend/collective_backend.h>

#include <chrono>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <vector>

namespace shoal {

/// Overrides splitGroup with the parameters that this libtorch's has: there are more of them in each version.
template <class Method>
class SplitsGroup;

template <class... Parameters>
class SplitsGroup<c10::intrusive_ptr<c10d::ProcessGroup> (c10d::ProcessGroup::*)(Parameters...)>
    : public c10d::ProcessGroup {
 public:
  using c10d::ProcessGroup::ProcessGroup;

  c10::intrusive_ptr<c10d::ProcessGroup> splitGroup(Parameters... parameters) final {
    const auto all = std::tie(parameters...);
    return split(std::get<0>(all), std::get<1>(all), std::get<3>(all), std::get<4>(all));
  }

 private:
  virtual c10::intrusive_ptr<c10d::ProcessGroup> split(const std::vector<int>& ranks,
                                                       const std::optional<std::chrono::milliseconds>& timeout,
                                                       const std::optional<std::string>& name,
                                                       const std::optional<std::string>& description) = 0;
};

/// Made by make_process_group. libtorch's own class splits a group by its store, of which this one has no need.
class CollectiveProcessGroup final : public SplitsGroup<decltype(&c10d::ProcessGroup::splitGroup)> {
 public:
  explicit CollectiveProcessGroup(c10::intrusive_ptr<CollectiveBackend> backend);

  const std::string getBackendName() const override { return backend_->getBackendName(); }

  /// Null if this rank is no member.
  c10::intrusive_ptr<c10d::ProcessGroup> split_by_list(const std::vector<int>& members) {
    return split(members, std::nullopt, std::nullopt, std::nullopt);
  }
  /// Null for kNoColor.
  c10::intrusive_ptr<c10d::ProcessGroup> split_by(int color, int key);
  CollectiveBackend& backend() const { return *backend_; }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> split(const std::vector<int>& ranks,
                                               const std::optional<std::chrono::milliseconds>& timeout,
                                               const std::optional<std::string>& name,
                                               const std::optional<std::string>& description) override;

  std::string next_name();

  c10::intrusive_ptr<CollectiveBackend> backend_;
};

}  // namespace shoal
