// What the benchmark of collectives does, for shoal and its peers alike.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace shoal::bench {

enum class Operation { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, barrier, send_recv };

/// One operation on floats. `bytes` are the larger side of a rank's data: what all_reduce reduces, all_gather gathers,
/// reduce_scatter and all_to_all cut into parts for the ranks, broadcast and send bring over.
struct CollectiveCase {
  Operation operation;
  std::size_t bytes;

  /// "all_reduce:1024": as peers get it on their command line.
  std::string word() const;
  /// "2 ranks, all_reduce of 1 KiB".
  std::string name(int ranks) const;
  /// Floats of one rank's part, if ranks have parts.
  std::size_t part(int ranks) const { return bytes / sizeof(float) / std::size_t(ranks); }
};

const char* name_of(Operation operation);
/// Reads word(); throws std::invalid_argument.
CollectiveCase case_of(const std::string& word);
/// All that `ranks` ranks can do: parts are whole floats.
std::vector<CollectiveCase> collective_cases(int ranks, std::size_t most_bytes);

}  // namespace shoal::bench
