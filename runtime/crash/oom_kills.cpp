#include <shoal/internal/runtime/crash/oom_kills.h>

#include <shoal/internal/ipc/base/cgroup.h>
#include <shoal/internal/ipc/fork/at_fork.h>

#include <chrono>
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

constinit std::mutex mutex;
OomKills* kills = nullptr;  // never destroyed: children may be looked after while the program ends

[[gnu::init_priority(101)]] const AtFork at_fork({
    .before = &ForkWaitsFor<mutex>::lock,
    .in_parent = &ForkWaitsFor<mutex>::unlock,
    .in_child = &ForkWaitsFor<mutex>::unlock,
});

}  // namespace

OomKills OomKills::of_this_cgroup(const std::string& root) {
  // The kernel counts a kill in the victim's own group, whichever group's limit was reached; so the innermost that
  // counts is the one. If both versions are mounted, one of them has the memory.
  for (const CgroupFolder& group : cgroup_folders(root, "memory")) {
    const std::string file = group.path + (group.version_2 ? "/memory.events" : "/memory.oom_control");
    if (count_in(file)) return OomKills(file);
  }
  return OomKills(root + "/proc/vmstat");
}

bool OomKills::explain_one() {
  constexpr std::chrono::seconds kMemory(1);  // deaths of one moment are looked at in one
  if (forgotten_.passed()) unanswered_ = 0;
  if (const auto now = count_in(file_)) {
    if (seen_ && *now > *seen_) {
      unanswered_ += *now - *seen_;
      forgotten_ = Deadline::after(kMemory);
    }
    seen_ = now;
  }
  if (unanswered_ == 0) return false;
  --unanswered_;
  return true;
}

void watch_oom_kills() {
  std::lock_guard lock(mutex);
  if (!kills) kills = new OomKills(OomKills::of_this_cgroup());
}

bool oom_killer_was_here() {
  std::lock_guard lock(mutex);
  return kills && kills->explain_one();
}

}  // namespace shoal
