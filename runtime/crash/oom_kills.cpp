#include <fmt/format.h>
#include <shoal/runtime/crash/oom_kills.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <sstream>

namespace shoal {
namespace {

std::optional<std::uint64_t> count_in(const std::string& file) {
  std::ifstream lines(file);
  std::string name;
  std::uint64_t value;
  for (std::string line; std::getline(lines, line);)
    if (std::istringstream words(line); words >> name >> value && name == "oom_kill") return value;
  return std::nullopt;
}

struct Watch {
  std::mutex mutex;
  std::optional<OomKills> kills;
};

/// Never destroyed: children may be looked after while the program ends.
Watch& watch() {
  static auto* instance = new Watch;
  return *instance;
}

}  // namespace

OomKills OomKills::of_this_cgroup() {
  // Lines of "hierarchy:controllers:path"; hierarchy 0 is cgroup v2.
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    std::string file;
    if (line.starts_with("0::"))
      file = fmt::format("/sys/fs/cgroup{}/memory.events", path);
    else if (controllers.find(",memory,") != std::string::npos)
      file = fmt::format("/sys/fs/cgroup/memory{}/memory.oom_control", path);
    if (!file.empty() && count_in(file)) return OomKills(file);
  }
  return OomKills("/proc/vmstat");
}

bool OomKills::have_grown() {
  const auto now = count_in(file_);
  const bool grown = now && seen_ && *now > *seen_;
  if (now) seen_ = now;
  return grown;
}

void watch_oom_kills() {
  Watch& own = watch();
  std::lock_guard lock(own.mutex);
  if (!own.kills) own.kills = OomKills::of_this_cgroup();
}

bool oom_killer_was_here() {
  Watch& own = watch();
  std::lock_guard lock(own.mutex);
  return own.kills && own.kills->have_grown();
}

}  // namespace shoal
