#include <shoal/internal/runtime/environment/nearest_name.h>

#include <algorithm>

namespace shoal {
namespace {

/// The distance of Damerau and Levenshtein, in which no part is changed twice.
std::size_t slips_between(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> slips(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        slips[i][j] = i + j;
        continue;
      }
      slips[i][j] = std::min({slips[i - 1][j] + 1, slips[i][j - 1] + 1, slips[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        slips[i][j] = std::min(slips[i][j], slips[i - 2][j - 2] + 1);
    }
  return slips[a.size()][b.size()];
}

}  // namespace

std::string nearest_name(const std::string& written, const std::vector<std::string>& names) {
  std::string nearest;
  std::size_t fewest = 3;
  for (const std::string& name : names)
    if (const std::size_t slips = slips_between(written, name); slips < fewest && slips < name.size()) {
      nearest = name;
      fewest = slips;
    }
  return nearest;
}

}  // namespace shoal
