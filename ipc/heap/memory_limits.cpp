#include <shoal/ipc/heap/memory_limits.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace shoal {
namespace {

/// Version 1 says "no limit" by a number of this size.
constexpr std::uint64_t kUnlimited = 1ull << 62;

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value;
  if (file >> value) return value;  // "max", which is version 2's "no limit", does not parse
  return std::nullopt;
}

/// The number behind this word in a file of lines "word number ...".
std::optional<std::uint64_t> read_entry(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    std::uint64_t value;
    if (fields >> name >> value && name == word) return value;
  }
  return std::nullopt;
}

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

}  // namespace

std::optional<std::uint64_t> MemoryLimits::machine_left() const {
  auto kib = read_entry(root_ + "/proc/meminfo", "MemAvailable:");
  if (!kib) return std::nullopt;
  return *kib << 10;
}

std::optional<MemoryLimits::Mount> MemoryLimits::find_mount(bool version_2) const {
  std::ifstream file(root_ + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // id parent device PART POINT options [tags...] - TYPE source SUPER_OPTIONS
    auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string id, parent, device, type, source, super;
    Mount mount;
    before >> id >> parent >> device >> mount.part >> mount.point;
    after >> type >> source >> super;
    if (version_2 ? type == "cgroup2" : type == "cgroup" && has_word(super, "memory")) return mount;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> MemoryLimits::least_left(const Mount& mount, const std::string& path,
                                                      bool version_2) const {
  const std::string top = root_ + mount.point;
  // A container may see only its own part of the hierarchy, and yet be told its path from the top.
  std::string at = path;
  if (mount.part != "/") at = path.starts_with(mount.part) ? path.substr(mount.part.size()) : "";
  std::optional<std::uint64_t> least;
  for (;;) {
    while (!at.empty() && at.back() == '/') at.pop_back();
    const std::string folder = top + at;
    auto limit = read_number(folder + (version_2 ? "/memory.max" : "/memory.limit_in_bytes"));
    auto usage = read_number(folder + (version_2 ? "/memory.current" : "/memory.usage_in_bytes"));
    if (limit && usage && *limit < kUnlimited) {
      // The usage holds page cache, which the kernel drops before it runs out: files that were read would
      // otherwise use up the budget. Shared memory is not among the inactive file pages.
      auto cache = read_entry(folder + "/memory.stat", version_2 ? "inactive_file" : "total_inactive_file");
      std::uint64_t used = *usage - std::min(*usage, cache.value_or(0));
      std::uint64_t left = *limit - std::min(*limit, used);
      if (!least || left < *least) least = left;
    }
    if (at.empty()) return least;
    at.resize(at.rfind('/'));
  }
}

std::optional<std::uint64_t> MemoryLimits::cgroup_left() const {
  std::ifstream file(root_ + "/proc/self/cgroup");
  std::optional<std::uint64_t> least;
  for (std::string line; std::getline(file, line);) {
    // number:CONTROLLERS:PATH, with no controllers in version 2
    auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && !has_word(controllers, "memory")) continue;
    auto mount = find_mount(version_2);
    if (!mount) continue;
    auto left = least_left(*mount, path, version_2);
    if (left && (!least || *left < *least)) least = left;
  }
  return least;
}

}  // namespace shoal
