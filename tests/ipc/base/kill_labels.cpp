#include "tests/ipc/base/kill_labels.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "tests/support/source_tree.h"

namespace shoal::test {

std::vector<std::string> all_kill_points() {
  std::set<std::string> labels;
  const std::regex point("SHOAL_KILL_POINT\\(\"([^\"]+)\"\\)");
  for (const auto& file : std::filesystem::recursive_directory_iterator(in_sources("ipc"))) {
    if (file.path().extension() != ".cpp" && file.path().extension() != ".h") continue;
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);)
      if (std::smatch match; std::regex_search(line, match, point)) labels.insert(match[1]);
  }
  return {labels.begin(), labels.end()};
}

}  // namespace shoal::test
