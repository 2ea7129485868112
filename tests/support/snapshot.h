// What the process holds of the kernel and of the session at one moment, and what one moment has more than another.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace shoal::test {

struct Snapshot {
  std::map<int, std::string> descriptors;       // number -> target
  std::map<std::string, std::size_t> mappings;  // backing file -> bytes. Anonymous memory is malloc's and the stacks'
  std::map<pid_t, std::string> children;        // pid -> name and state
  std::size_t heap_bytes = 0;
};

Snapshot take_snapshot();

/// One line for each thing that `after` has and `before` had not. Children in `allowed` don't count, nor does what a
/// CUDA driver opens and maps as it likes, where `after` shows that it is in use.
std::vector<std::string> find_leaks(const Snapshot& before, const Snapshot& after, const std::set<pid_t>& allowed);

}  // namespace shoal::test
