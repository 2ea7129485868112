#include <shoal/internal/runtime/crash/oom_kills.h>

#include <errno.h>
#include <shoal/internal/ipc/base/cgroup.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/fd.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/stop.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_folder.h"

namespace shoal {
namespace {

using test::kSanitized;

namespace fs = std::filesystem;

TEST_CASE("oom kills: a counter that grows explains one death, and as many as it grew by at once") {
  char path[] = "/tmp/shoal-events-XXXXXX";
  Fd file(::mkstemp(path));
  auto write = [&](int kills) { std::ofstream(path) << "low 0\nmax 4\noom 7\noom_kill " << kills << "\n"; };
  write(3);
  OomKills events(path);
  CHECK_FALSE(events.explain_one());
  write(4);
  CHECK(events.explain_one());
  CHECK_FALSE(events.explain_one());
  write(7);
  for (int i = 0; i < 3; ++i) CHECK(events.explain_one());
  CHECK_FALSE(events.explain_one());
  ::unlink(path);
  CHECK_FALSE(events.explain_one());
}

TEST_CASE("oom kills: this process has a counter, in its cgroup or of the machine") {
  OomKills events = OomKills::of_this_cgroup();
  CHECK(::access(events.file().c_str(), R_OK) == 0);
  CHECK_FALSE(events.explain_one());
}

/// A folder that looks like the kernel's files.
class FakeKernel {
 public:
  std::string write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(folder_.file(path)).parent_path());
    std::ofstream(folder_.file(path)) << text;
    return folder_.file(path);
  }
  OomKills kills() const { return OomKills::of_this_cgroup(folder_.path()); }

 private:
  const test::TemporaryFolder folder_;
};

constexpr const char* kVersion2 = "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
constexpr const char* kVersion1 = "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

TEST_CASE("oom kills: version 2 counts them in memory.events") {
  FakeKernel kernel;
  kernel.write("/proc/self/cgroup", "0::/job/part\n");
  kernel.write("/proc/self/mountinfo", kVersion2);
  kernel.write("/sys/fs/cgroup/job/memory.events", "oom_kill 90\n");
  auto set = [&](int count) {
    return kernel.write("/sys/fs/cgroup/job/part/memory.events",
                        "low 0\nhigh 0\nmax 31\noom 5\noom_kill " + std::to_string(count) + "\noom_group_kill 0\n");
  };
  const std::string file = set(2);
  OomKills kills = kernel.kills();
  CHECK(fs::path(kills.file()) == fs::path(file));
  CHECK_FALSE(kills.explain_one());
  set(3);
  CHECK(kills.explain_one());
  CHECK_FALSE(kills.explain_one());
}

TEST_CASE("oom kills: version 1 counts them in memory.oom_control, also beside a version 2 without memory") {
  FakeKernel kernel;
  const bool hybrid = GENERATE(false, true);
  kernel.write("/proc/self/cgroup", std::string(hybrid ? "0::/job\n" : "") + "4:memory:/job\n");
  kernel.write("/proc/self/mountinfo", std::string(hybrid ? kVersion2 : "") + kVersion1);
  auto set = [&](int count) {
    return kernel.write("/sys/fs/cgroup/memory/job/memory.oom_control",
                        "oom_kill_disable 0\nunder_oom 0\noom_kill " + std::to_string(count) + "\n");
  };
  const std::string file = set(0);
  OomKills kills = kernel.kills();
  CHECK(fs::path(kills.file()) == fs::path(file));
  set(1);
  CHECK(kills.explain_one());
}

TEST_CASE("oom kills: where the cgroup counts none, the machine's counter is read") {
  FakeKernel kernel;
  kernel.write("/proc/self/cgroup", "0::/\n");
  kernel.write("/proc/self/mountinfo", kVersion2);
  const std::string file = kernel.write("/proc/vmstat", "nr_free_pages 5\noom_kill 7\n");
  OomKills kills = kernel.kills();
  CHECK(fs::path(kills.file()) == fs::path(file));
  kernel.write("/proc/vmstat", "nr_free_pages 5\noom_kill 8\n");
  CHECK(kills.explain_one());
}

/// A cgroup made for one test, which may have little memory. Below SHOAL_TEST_CGROUP, or this process's own.
class SmallGroup {
 public:
  /// Null, and why, where this machine does not let one be made.
  static std::unique_ptr<SmallGroup> make(std::uint64_t bytes, std::string& why) {
    const auto own = cgroup_folders("", "memory");
    const char* wanted = ::getenv("SHOAL_TEST_CGROUP");
    if (!wanted && own.empty()) {
      why = "this machine shows no cgroup with memory";
      return nullptr;
    }
    const std::string above = wanted ? wanted : own.front().path;
    const std::string path = above + "/shoal-test-" + std::to_string(::getpid());
    if (::mkdir(path.c_str(), 0755) != 0) {
      why = "no cgroup can be made in " + above + " (" + ::strerror(errno) + ")";
      return nullptr;
    }
    std::unique_ptr<SmallGroup> group(new SmallGroup(path));
    const bool version_2 = fs::exists(path + "/memory.max");
    const std::string limit = path + (version_2 ? "/memory.max" : "/memory.limit_in_bytes");
    if (!fs::exists(limit) || !(std::ofstream(limit) << bytes << std::flush)) {
      why = "a cgroup made in " + above + " gets no limit of memory: " + limit;
      return nullptr;
    }
    // Not into swap, where there is some.
    std::ofstream(path + (version_2 ? "/memory.swap.max" : "/memory.memsw.limit_in_bytes")) << (version_2 ? 0 : bytes);
    return group;
  }
  ~SmallGroup() {
    // The kernel counts those that have just ended for a moment more.
    while (::rmdir(path_.c_str()) != 0 && errno == EBUSY) std::this_thread::yield();
  }
  SmallGroup(const SmallGroup&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit SmallGroup(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

constexpr std::size_t kGroupBytes = 96 << 20, kEatenBytes = 512 << 20;

void eat() {
  std::vector<std::unique_ptr<char[]>> eaten;
  for (std::size_t bytes = 0; bytes < kEatenBytes; bytes += 1 << 20) {
    eaten.push_back(std::make_unique<char[]>(1 << 20));
    ::memset(eaten.back().get(), 1, 1 << 20);
    asm volatile("" : : "r"(eaten.back().get()) : "memory");
  }
}

/// As one that writes a checkpoint when it is told to stop, and takes too much for that.
void eat_when_told(Event listens) {
  (void)stop_requested();
  listens.set();
  while (!stop_requested()) std::this_thread::yield();
  eat();
}

/// Goes into the group itself, and starts there what eats more than it has. What the parent's exceptions say.
std::vector<std::tuple<bool, std::string>> start_eaters(const std::string& group) {
  std::ofstream tasks(group + "/cgroup.procs");
  if (!(tasks << ::getpid() << std::flush)) return {{false, "this process may not enter " + group}};
  Event listens;
  Process plain({.name = "eater", .start_method = StartMethod::spawn}, eat);
  Process told({.name = "told", .start_method = StartMethod::spawn}, eat_when_told, listens);
  std::vector<std::tuple<bool, std::string>> results;
  auto finish = [&](auto& eater) {
    eater.join();
    try {
      eater.result();
      results.emplace_back(false, "it was not killed");
    } catch (const ProcessExited& failed) {
      results.emplace_back(failed.oom_killed(), failed.what());
    }
  };
  plain.start();
  finish(plain);
  told.start();
  listens.wait();
  told.terminate();
  finish(told);
  return results;
}

TEST_CASE("oom kills: a child that the OOM killer ended in a real cgroup is told as that, also one that was to stop") {
  if (kSanitized) {
    WARN("skipped: a sanitizer's own memory does not fit into a small cgroup");
    return;
  }
  std::string why;
  const auto group = SmallGroup::make(kGroupBytes, why);
  if (!group) {
    WARN("skipped: " << why << ". SHOAL_TEST_CGROUP names a folder of the cgroup hierarchy where one can");
    return;
  }
  Process process({.start_method = StartMethod::spawn}, start_eaters, group->path());
  process.start();
  const auto results = process.result();
  REQUIRE(results.size() == 2);
  for (const auto& [told, what] : results) {
    CAPTURE(what);
    CHECK(told);
    CHECK_THAT(what, ContainsSubstring("SIGKILL") && ContainsSubstring("OOM killer"));
  }
}

}  // namespace
}  // namespace shoal
