// Names of archives by patterns.
#include <fmt/format.h>
#include <glob.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/tar/tar_file.h>

#include <charconv>
#include <stdexcept>

namespace shoal {
namespace {

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
  if (!are_numbers || last < first || last - first >= 10'000'000)
    throw std::invalid_argument(
        fmt::format("tar_archives: {:?}: {{{}}} does not count up; {{000000..000146}} does", pattern, inside));
  std::vector<std::string> names;
  for (std::uint64_t number = first; number <= last; ++number)
    names.push_back(fmt::format("{}{:0{}}{}", pattern.substr(0, open), number, dots, pattern.substr(close + 1)));
  return names;
}

std::vector<std::string> found(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) return {pattern};
  glob_t matches{};
  const int result = ::glob(pattern.c_str(), 0, nullptr, &matches);
  std::vector<std::string> names(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  if (result != 0) throw DatasetError(fmt::format("{}: no file has such a name", pattern));
  return names;
}

}  // namespace

std::vector<std::filesystem::path> tar_archives(const std::string& pattern) {
  const std::size_t open = pattern.find('{'), close = pattern.find('}', open == std::string::npos ? 0 : open);
  std::vector<std::string> names;
  if (open != std::string::npos && close != std::string::npos) names = counted(pattern, open, close);
  if (names.empty()) names = {pattern};
  std::vector<std::filesystem::path> archives;
  for (const std::string& name : names)
    for (std::string& file : found(name)) archives.emplace_back(std::move(file));
  return archives;
}

}  // namespace shoal
