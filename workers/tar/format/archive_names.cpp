// Names of archives by patterns.
#include <fmt/format.h>
#include <glob.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/tar/tar_file.h>

#include <charconv>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace shoal {
namespace {

constexpr std::uint64_t kMostArchives = 10'000'000;

/// "000..146" as names of as many digits; nothing if it is something else.
std::vector<std::string> counted(const std::string& pattern, std::size_t open, std::size_t close) {
  const std::string inside = pattern.substr(open + 1, close - open - 1);
  const std::size_t dots = inside.find("..");
  if (dots == std::string::npos) return {};
  const char* begin = inside.data();
  const char* end = begin + inside.size();
  std::uint64_t first = 0, last = 0;
  const auto [first_end, first_error] = std::from_chars(begin, begin + dots, first);
  const auto [last_end, last_error] = std::from_chars(begin + dots + 2, end, last);
  const bool are_numbers =
      first_error == std::errc() && last_error == std::errc() && first_end == begin + dots && last_end == end;
  if (!are_numbers || last < first || last - first >= kMostArchives)
    throw std::invalid_argument(
        fmt::format("tar_archives: {:?}: {{{}}} does not count up; {{000000..000146}} does", pattern, inside));
  std::vector<std::string> names;
  for (std::uint64_t number = first; number <= last; ++number)
    names.push_back(fmt::format("{}{:0{}}{}", pattern.substr(0, open), number, dots, pattern.substr(close + 1)));
  return names;
}

/// Adds the archives of a pattern, which is one of `patterns`: for each number in its first braces those that have it.
void append(const std::string& pattern, std::uint64_t patterns, std::vector<std::filesystem::path>& archives) {
  std::error_code error;
  if (pattern.find_first_of("*?[{") == std::string::npos || std::filesystem::exists(pattern, error))
    return (void)archives.emplace_back(pattern);
  for (std::size_t open = pattern.find('{'); open != std::string::npos; open = pattern.find('{', open + 1)) {
    const std::size_t close = pattern.find('}', open);
    if (close == std::string::npos) break;
    const std::vector<std::string> names = counted(pattern, open, close);
    if (names.empty()) continue;
    if (names.size() > kMostArchives / patterns)
      throw std::invalid_argument(fmt::format("tar_archives: {:?}: more than {} archives", pattern, kMostArchives));
    for (const std::string& name : names) append(name, patterns * names.size(), archives);
    return;
  }
  if (pattern.find_first_of("*?[") == std::string::npos) return (void)archives.emplace_back(pattern);
  glob_t matches{};
  const int result = ::glob(pattern.c_str(), 0, nullptr, &matches);
  archives.insert(archives.end(), matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  if (result != 0) throw DatasetError(fmt::format("{}: no file has such a name", pattern));
}

}  // namespace

std::vector<std::filesystem::path> tar_archives(const std::string& pattern) {
  std::vector<std::filesystem::path> archives;
  append(pattern, 1, archives);
  return archives;
}

}  // namespace shoal
