#include <shoal/internal/workers/tar/make/numbered_archives.h>

#include <fmt/format.h>
#include <glob.h>
#include <shoal/internal/workers/tar/format/tar_index.h>
#include <shoal/ipc/log.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace shoal::detail {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// For glob(3): the text itself.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view("*?[]\\").find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string NumberedName::name(std::size_t number) const {
  return fmt::format("{}{:0{}}{}", before, number, digits, behind);
}

std::optional<NumberedName> numbered_name(const std::string& pattern) {
  for (std::size_t at = pattern.find('%'); at != std::string::npos; at = pattern.find('%', at + 1)) {
    std::size_t end = at + 1;
    while (end < pattern.size() && end < at + 4 && is_digit(pattern[end])) ++end;
    if (end == pattern.size() || pattern[end] != 'd') continue;
    const std::string digits = pattern.substr(at + 1, end - at - 1);
    return NumberedName{pattern.substr(0, at), pattern.substr(end + 1),
                        digits.empty() ? 0 : std::size_t(std::stoi(digits))};
  }
  return std::nullopt;
}

std::vector<std::filesystem::path> archives_there(const NumberedName& name) {
  glob_t matches{};
  std::vector<std::pair<std::string, std::filesystem::path>> found;  // by the number without its zeros
  if (::glob((escaped(name.before) + "*" + escaped(name.behind)).c_str(), 0, nullptr, &matches) == 0)
    for (std::size_t i = 0; i < matches.gl_pathc; ++i) {
      const std::string path = matches.gl_pathv[i];
      if (path.size() <= name.before.size() + name.behind.size() || !path.starts_with(name.before)) continue;
      std::string number = path.substr(name.before.size(), path.size() - name.before.size() - name.behind.size());
      if (!std::ranges::all_of(number, is_digit)) continue;
      number.erase(0, std::min(number.find_first_not_of('0'), number.size() - 1));
      found.emplace_back(std::move(number), path);
    }
  ::globfree(&matches);
  std::ranges::sort(found, {}, [](const auto& one) { return std::pair(one.first.size(), one); });
  std::vector<std::filesystem::path> archives;
  archives.reserve(found.size());
  for (auto& [number, path] : found) archives.push_back(std::move(path));
  return archives;
}

std::string listed(std::span<const std::filesystem::path> archives) {
  const std::string& first = archives.front().native();
  if (archives.size() == 1) return fmt::format("the archive {}", first);
  return fmt::format("{} archives, {} {} {}", archives.size(), first, archives.size() == 2 ? "and" : "to",
                     archives.back().native());
}

void remove_others(const std::vector<std::filesystem::path>& there, const std::vector<std::filesystem::path>& kept) {
  const std::set<std::filesystem::path> staying(kept.begin(), kept.end());
  std::vector<std::filesystem::path> others;
  for (const auto& archive : there)
    if (!staying.contains(archive)) others.push_back(archive);
  if (others.empty()) return;
  for (const auto& archive : others) {
    std::error_code error, unknown;
    std::filesystem::remove(archive, error);
    if (error)
      throw DatasetError(
          fmt::format("{}: an archive of an earlier run, which can't be removed: {}; the new ones are whole, {}",
                      archive.native(), error.message(), listed(kept)));
    std::filesystem::remove(tar_index_files(archive, {}).front(),
                            unknown);  // without its archive it is never looked at
  }
  log_warning("TarWriter: removed {}: of an earlier run, which had more", listed(others));
}

}  // namespace shoal::detail
