// Which pass of which DistributedDataParallel a collective belongs to.
#pragma once

#include <cstdint>
#include <string>

namespace shoal {

/// A forward pass of one of a group's DistributedDataParallels, with all that follows from it. Ranks compare it in each
/// collective: of a rank that has lost a pass the gradients would be summed with the others' of the pass before.
struct ForwardPass {
  static constexpr std::uint32_t kStartsAnew = ~0u;  ///< in `number`: a rank waits for all to start anew

  std::uint32_t model = 0;   ///< which one, from 1, in the order in which the group's ranks made them; 0: none
  std::uint32_t number = 0;  ///< of the pass, from 1, since it was made or all ranks have started anew

  bool operator==(const ForwardPass&) const = default;
};

/// A forward pass, and the group in which its model has that number.
struct GroupsPass {
  ForwardPass pass;
  const void* group = nullptr;  ///< its CollectiveBackend; null: none of shoal's
  bool is_called = false;       ///< by this backend, which is in a collective now

  /// In a collective of `backend`'s group. In another one than its own, a hook's for example, ranks may have made other models.
  GroupsPass called_by(const void* backend) const {
    return {group == backend ? pass : ForwardPass{0, pass.number}, backend, true};
  }
  /// What a rank says in a collective. Of one that a hook does without a backend nobody knows whose models count.
  ForwardPass announced() const { return is_called ? pass : ForwardPass{0, pass.number}; }
};

/// While it lives, collectives that this thread begins belong to the pass. They may nest.
class ForwardPassScope {
 public:
  explicit ForwardPassScope(const GroupsPass& pass);
  ForwardPassScope(const ForwardPassScope&) = delete;
  ForwardPassScope& operator=(const ForwardPassScope&) = delete;
  ~ForwardPassScope();

  /// The innermost one's of this thread; no model's without one.
  static const GroupsPass& current();

 private:
  GroupsPass before_;
};

/// " in forward pass 3 of DistributedDataParallel": what stands behind a call's description; empty without a model.
std::string text_of(ForwardPass pass);
/// What may have put two ranks apart whose calls belong to different passes of one model, or to one and none; empty for others. `one`, `other`: the
/// ranks in words.
std::string why_apart(const std::string& one, ForwardPass of_one, const std::string& other, ForwardPass of_other);

}  // namespace shoal
