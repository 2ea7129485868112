// Where the ranks of one host tell each other what went wrong.
#pragma once

#include <shoal/ipc/raw_array.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace shoal {

/// Why a group of several hosts is broken.
struct Failure {
  enum Kind : std::uint32_t { died = 1, timed_out = 2, aborted = 3, unreachable = 4 };
  Kind kind = died;
  std::string text;  ///< who and why, without the collective
  int rank = -1;     ///< whose; -1: nobody's alone
};

/// A block of the heap that the ranks of a host share. The first failure that is written stays, and all throw the same
/// text. Each rank besides has words of its own there. If a rank dies while it writes, the next one that has a failure to
/// tell writes. Threads and processes: any. The handle crosses by the array inside.
class FailureBoard {
 public:
  using Block = RawArray<std::uint64_t>;
  static Block make(int ranks);

  FailureBoard(Block block, int local_rank);

  /// Writes the failure that `find_out` returns, unless there is one already. Returns the one that is there. If `find_out`
  /// throws, another rank may write.
  template <class FindOut>
  Failure write_first(FindOut find_out) {
    for (;;) {
      if (begin()) {
        try {
          end(find_out());
        } catch (...) {
          give_up();
          throw;
        }
      }
      if (auto there = wait()) return *there;  // who was to write it has died, or failed: then this one does
    }
  }
  bool has_failed() const;
  /// The failure, if there is one, and whoever has found it lived to write it.
  std::optional<Failure> read() const;

  /// What others find about a rank: the process that it is, whether it has left, whom it waits for.
  void enter(std::uint32_t tag);
  void leave();
  /// The rank of another host that this one waits for; -1: none.
  void wait_for(int rank);
  std::uint32_t tag_of(int local_rank) const;
  bool has_left(int local_rank) const;
  int awaited_by(int local_rank) const;

 private:
  struct Layout;
  struct RankWords;
  bool begin();
  void end(const Failure& failure);
  void give_up();
  std::optional<Failure> wait() const;
  bool is_dead_writer(std::uint32_t state) const;
  Layout& layout() const;
  RankWords& words(int local_rank) const;

  Block block_;
  int local_rank_;
};

}  // namespace shoal
