// One part of a checkpoint: a model, an optimizer, a value.
#pragma once

#include <functional>
#include <string>
#include <utility>

namespace shoal::detail {

class CheckpointStep;
class ShardContents;

/// Refers to what it saves and loads. One thread.
class CheckpointPart {
 public:
  explicit CheckpointPart(std::string name) : name_(std::move(name)) {}
  CheckpointPart(const CheckpointPart&) = delete;
  CheckpointPart& operator=(const CheckpointPart&) = delete;
  virtual ~CheckpointPart();

  const std::string& name() const { return name_; }
  /// Adds this rank's entries.
  virtual void write(ShardContents& to) const = 0;
  /// Looks whether all is there and fits; throws CheckpointError if not. The result loads it, while `from` lives: so
  /// nothing is changed before all parts were looked at.
  [[nodiscard]] virtual std::function<void()> prepare(const CheckpointStep& from) const = 0;

 private:
  std::string name_;
};

}  // namespace shoal::detail
