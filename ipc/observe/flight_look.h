// What the ranks of a session's groups did last, and who is missing in a collective, seen from outside.
#pragma once

#include <shoal/internal/ipc/observe/session_view.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// A collective of one rank.
struct SeenCall {
  std::uint64_t call = 0;            // which one of the rank's, from 1 on
  std::uint64_t start = 0, end = 0;  // CLOCK_MONOTONIC, in nanoseconds, to some ms; end 0: it goes on
  std::uint64_t bytes = 0;
  std::string name, type;  // "all_reduce", "Float"; any characters
  bool failed = false;     // it ended by an exception
};

struct SeenRank {
  std::optional<std::uint32_t> slot;  // of its process, if that is in the view
  pid_t pid = 0;
  pid_t thread = 0;  // that called last
  bool joined = false, left = false;
  bool alive = false;          // joined, and its process is there
  std::optional<int> number;   // that it has in a group over several hosts, of whose ranks these are some
  std::uint64_t calls = 0;     // ever begun
  std::vector<SeenCall> last;  // the newest ones, in order; those that were being written are left out

  /// The one that it is in now.
  const SeenCall* current() const { return !last.empty() && last.back().end == 0 ? &last.back() : nullptr; }
  const SeenCall* find(std::uint64_t call) const;
};

struct SeenGroup {
  std::uint64_t block;    // position in the heap
  std::uint64_t payload;  // of its bytes
  std::vector<SeenRank> ranks;

  /// By which people know the rank that is the `index`th here.
  int number_of(int index) const { return ranks[std::size_t(index)].number.value_or(index); }
};

/// The groups of a session, with the last `most` calls of each rank. It believes nothing that it reads; see SessionFile.
std::vector<SeenGroup> look_at_groups(const SessionFile& file, const SessionView& view, std::size_t most);

/// A collective that some ranks wait in and others have not called.
struct Stuck {
  SeenCall call;             // as the rank has it that has waited longest
  int rank;                  // that one, by its place in the group
  std::vector<int> missing;  // ranks that have not called it, likewise; none: all have, and it goes on
};
/// Nothing if nobody is in a collective.
std::optional<Stuck> find_stuck(const SeenGroup& group);

}  // namespace shoal
