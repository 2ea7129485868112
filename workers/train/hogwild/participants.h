// Which processes do steps, how far each is, and the wait of those that are ahead.
#pragma once

#include <shoal/internal/workers/train/hogwild/hogwild_layout.h>

#include <cstdint>

namespace shoal::hogwild {

/// This process's part in the staleness bound of one optimizer (stale synchronous parallel: Ho and others, 2013). One
/// thread. Each process that does steps has a record with its clock. A process is at most `staleness_bound` steps ahead
/// of the slowest one that lives and has not left. Several objects of a process, which got the optimizer several times, are
/// one participant: they share its record, and the first that leaves gives it back until another one steps.
///
///   I1 Only the process that a record's tag names writes to the record, or, if that process is dead, the one whose CAS
///      from the dead tag wins.
///   I2 A clock counts while the tag is not in transit: until then the newcomer looks for its start. It starts where the
///      slowest is, and looks once more when it counts: nobody waits for the steps that were done before it came.
///   I3 A dead process's record counts as free for everybody, without anybody's help: those that wait look at tags, and
///      wake at least every 100 ms.
class Participants {
 public:
  explicit Participants(HogwildLayout& layout) : layout_(layout) {}
  Participants(const Participants&) = delete;
  Participants& operator=(const Participants&) = delete;
  ~Participants() { leave(); }

  /// Called before a step: takes a record if this process has none. Throws Error if there is none left.
  void come();
  /// Called after a step: counts it, and waits while this process is too far ahead. Throws TimeoutError.
  void step_done();
  void leave() noexcept;

 private:
  bool has_record() const noexcept;
  bool find_record();  // that another object of this process has taken
  void take_record();
  /// The least clock of the others that count, or `otherwise`; `whose`: the record's index.
  std::int64_t slowest(std::int64_t otherwise, std::uint32_t* whose = nullptr) const;
  bool may_go_on(std::int64_t clock) const;
  void wait(std::int64_t clock);

  static constexpr std::uint32_t kNone = ~0u;
  HogwildLayout& layout_;
  std::uint32_t own_ = kNone;
};

}  // namespace shoal::hogwild
