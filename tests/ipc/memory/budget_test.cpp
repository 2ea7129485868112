#include <shoal/internal/ipc/memory/budget.h>

#include <shoal/internal/ipc/memory/memory_limits.h>
#include <shoal/internal/ipc/memory/recent_budget.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

/// A folder that looks like the kernel's files.
class FakeKernel {
 public:
  FakeKernel() {
    write("/proc/meminfo", "MemTotal:       1000000 kB\nMemFree:          50000 kB\nMemAvailable:     400000 kB\n");
  }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(folder_.file(path)).parent_path());
    std::ofstream(folder_.file(path)) << text;
  }
  /// Version 2, with this process in the group.
  void use_version_2(const std::string& group, const std::string& part = "/") const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo",
          "22 1 0:21 / /proc rw - proc proc rw\n"
          "41 31 0:38 " +
              part + " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  /// Version 1: one hierarchy for each controller.
  void use_version_1(const std::string& group, const std::string& part = "/") const {
    write("/proc/self/cgroup", "5:cpu,cpuacct:/elsewhere\n4:memory:" + group + "\n1:name=systemd:/x\n0::/\n");
    write("/proc/self/mountinfo",
          "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
          "35 31 0:32 " +
              part + " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  }
  void group_2(const std::string& group, const std::string& max, const std::string& current) const {
    write("/sys/fs/cgroup" + group + "/memory.max", max + "\n");
    write("/sys/fs/cgroup" + group + "/memory.current", current + "\n");
  }
  void group_1(const std::string& group, const std::string& limit, const std::string& usage) const {
    write("/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes", limit + "\n");
    write("/sys/fs/cgroup/memory" + group + "/memory.usage_in_bytes", usage + "\n");
  }
  MemoryLimits limits() const { return MemoryLimits(folder_.path()); }

 private:
  const test::TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("budget: the machine's limit is its available memory, not its free one") {
  FakeKernel kernel;
  CHECK(kernel.limits().machine_left() == 400000ull << 10);
  CHECK_FALSE(kernel.limits().cgroup_left());
  Budget budget = Budget::now(0, 0, kernel.limits());
  CHECK(budget.allowed == 400000ull << 10);
  CHECK(budget.limit == "the machine's available memory");
}

TEST_CASE("budget: a system that says nothing limits nothing") {
  CHECK(Budget::now(5, 5, MemoryLimits("/nowhere")).limit == "no limit");
  CHECK_FALSE(MemoryLimits("/nowhere").machine_left());
}

TEST_CASE("budget: version 2: the tightest group on the way to the root counts") {
  FakeKernel kernel;
  kernel.use_version_2("/user.slice/job");
  kernel.group_2("/user.slice/job", "100000000", "10000000");
  CHECK(kernel.limits().cgroup_left() == 90'000'000u);
  kernel.group_2("/user.slice", "150000000", "140000000");  // the parent has less left than the child
  CHECK(kernel.limits().cgroup_left() == 10'000'000u);
  kernel.group_2("/user.slice", "150000000", "160000000");  // over the limit: nothing left, not a huge number
  CHECK(kernel.limits().cgroup_left() == 0u);
  kernel.group_2("/user.slice", "max", "160000000");
  CHECK(kernel.limits().cgroup_left() == 90'000'000u);
  kernel.group_2("/user.slice/job", "max", "10000000");
  CHECK_FALSE(kernel.limits().cgroup_left());
}

TEST_CASE("budget: version 1: the tightest group counts, and its huge number is no limit") {
  FakeKernel kernel;
  kernel.use_version_1("/docker/abc");
  kernel.group_1("", "9223372036854771712", "500000000");
  kernel.group_1("/docker", "9223372036854771712", "500000000");
  kernel.group_1("/docker/abc", "9223372036854771712", "500000000");
  CHECK_FALSE(kernel.limits().cgroup_left());
  kernel.group_1("/docker/abc", "80000000", "30000000");
  CHECK(kernel.limits().cgroup_left() == 50'000'000u);
  kernel.group_1("/docker", "600000000", "580000000");
  CHECK(kernel.limits().cgroup_left() == 20'000'000u);
}

TEST_CASE("budget: a container that sees its part of the hierarchy only finds its limit") {
  FakeKernel kernel;
  SECTION("version 1, mounted from its own group, told the path from the top") {
    kernel.use_version_1("/docker/abc", "/docker/abc");
    kernel.group_1("", "80000000", "30000000");
    CHECK(kernel.limits().cgroup_left() == 50'000'000u);
  }
  SECTION("version 2, a process in a group below the mounted one") {
    kernel.use_version_2("/pod/abc/inner", "/pod/abc");
    kernel.group_2("", "80000000", "30000000");
    kernel.group_2("/inner", "50000000", "10000000");
    CHECK(kernel.limits().cgroup_left() == 40'000'000u);
  }
  SECTION("version 2, the mount's part only begins as the path does") {
    kernel.use_version_2("/job_12", "/job_1");
    kernel.group_2("", "80000000", "30000000");
    CHECK(kernel.limits().cgroup_left() == 50'000'000u);
  }
  SECTION("version 2, the mount's part is not on the path") {
    kernel.use_version_2("/", "/../..");
    kernel.group_2("", "80000000", "30000000");
    CHECK(kernel.limits().cgroup_left() == 50'000'000u);
  }
}

TEST_CASE("budget: both versions at once: the one with the memory controller counts") {
  FakeKernel kernel;
  kernel.use_version_1("/job");
  kernel.write("/proc/self/mountinfo",
               "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
               "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  kernel.group_1("/job", "80000000", "30000000");
  CHECK(kernel.limits().cgroup_left() == 50'000'000u);
}

TEST_CASE("budget: page cache that the kernel would drop is not in use") {
  FakeKernel kernel;
  SECTION("version 2") {
    kernel.use_version_2("/job");
    kernel.group_2("/job", "100000000", "95000000");
    kernel.write("/sys/fs/cgroup/job/memory.stat",
                 "anon 1000\nfile 60000000\ninactive_file 40000000\nshmem 20000000\n");
    CHECK(kernel.limits().cgroup_left() == 45'000'000u);
  }
  SECTION("version 1") {
    kernel.use_version_1("/job");
    kernel.group_1("/job", "100000000", "95000000");
    kernel.write("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 40000000\n");
    CHECK(kernel.limits().cgroup_left() == 45'000'000u);
  }
}

TEST_CASE("budget: what was promised and not written yet is taken off what is left") {
  FakeKernel kernel;
  kernel.use_version_2("/job");
  kernel.group_2("/job", "100000000", "10000000");  // 90 MB left
  // 30 MB committed, 20 MB of them written: 10 MB are still to come out of the 90.
  Budget budget = Budget::now(30'000'000, 20'000'000, kernel.limits());
  CHECK(budget.allowed == 30'000'000 + 80'000'000);
  CHECK(budget.limit == "the cgroup's memory limit");
  CHECK(Budget::now(500'000'000, 0, kernel.limits()).allowed == 500'000'000);  // promised more than is left: no more
}

TEST_CASE("budget: the lowest limit counts and is named") {
  FakeKernel kernel;
  kernel.use_version_2("/job");
  kernel.group_2("/job", "300000000", "0");
  ::setenv("SHOAL_MEMORY_LIMIT", "200M", 1);
  Budget budget = Budget::now(0, 0, kernel.limits());
  ::unsetenv("SHOAL_MEMORY_LIMIT");
  CHECK(budget.allowed == 200u << 20);
  CHECK(budget.limit == "SHOAL_MEMORY_LIMIT");
  CHECK(Budget::now(0, 0, kernel.limits()).limit == "the cgroup's memory limit");
}

TEST_CASE("budget: where the kernel promises no more than it has, that is a limit, with what it keeps back") {
  FakeKernel kernel;
  kernel.write("/proc/meminfo",
               "MemTotal:         256000 kB\nMemAvailable:     400000 kB\nCommitLimit:      300000 kB\n"
               "Committed_AS:     100000 kB\n");
  for (const char* lenient : {"0\n", "1\n"}) {
    kernel.write("/proc/sys/vm/overcommit_memory", lenient);
    CHECK_FALSE(kernel.limits().commit_left());
    CHECK(Budget::now(0, 0, kernel.limits()).limit == "the machine's available memory");
  }
  kernel.write("/proc/sys/vm/overcommit_memory", "2\n");
  CHECK(kernel.limits().commit_left() == (200000ull - 1000) << 10);
  kernel.write("/proc/sys/vm/admin_reserve_kbytes", "8192\n");
  kernel.write("/proc/sys/vm/user_reserve_kbytes", "131072\n");
  CHECK(kernel.limits().commit_left() == (200000ull - 1000 - 8192 - 131072) << 10);
  const Budget budget = Budget::now(30 << 20, 20 << 20, kernel.limits());
  CHECK(budget.which == Budget::Which::kCommit);
  CHECK(budget.limit == "the machine's commit limit (vm.overcommit_memory is 2)");
  CHECK(budget.allowed == (20ull << 20) + *kernel.limits().commit_left());
  kernel.write("/proc/sys/vm/user_reserve_kbytes", "999999\n");  // more than is left: nothing, and no huge number
  CHECK(kernel.limits().commit_left() == 0u);
}

TEST_CASE("budget: what was said a moment ago will do while it is enough, and nothing is refused by it") {
  FakeKernel kernel;
  kernel.use_version_2("/job");
  kernel.group_2("/job", "100000000", "0");
  RecentBudget recent(kernel.limits());
  int looks = 0;
  auto resident = [&] { return ++looks, 0ull; };
  const auto start = RecentBudget::Clock::now();
  auto allowed = [&](std::uint64_t committed, std::uint64_t more, std::chrono::nanoseconds later) {
    return recent.of(committed, more, resident, start + later).allowed;
  };
  CHECK(allowed(0, 10'000'000, 0ms) == 100'000'000);
  REQUIRE(looks == 1);
  kernel.group_2("/job", "100000000", "60000000");  // pages that came meanwhile, of the heap or of others
  SECTION("what is committed since counts against it, whoever committed it") {
    CHECK(allowed(90'000'000, 10'000'000, 1ms) == 100'000'000);
    CHECK(looks == 1);
    // One byte too many for the old look: asked anew, 40 MB left, all of them promised.
    CHECK(allowed(90'000'000, 10'000'001, 1ms) == 90'000'000);
    CHECK(looks == 2);
  }
  SECTION("after its time it is asked anew") {
    CHECK(allowed(0, 10'000'000, RecentBudget::kGoodFor - 1ns) == 100'000'000);
    CHECK(looks == 1);
    CHECK(allowed(0, 10'000'000, RecentBudget::kGoodFor) == 40'000'000);
    CHECK(looks == 2);
  }
  SECTION("a limit that was raised since is found before anything is refused") {
    kernel.group_2("/job", "300000000", "0");
    CHECK(allowed(0, 200'000'000, 1ms) == 300'000'000);
  }
  SECTION("the setting is looked at each time") {
    ::setenv("SHOAL_MEMORY_LIMIT", "1M", 1);
    const Budget budget = recent.of(0, 1, resident, start + 1ms);
    ::unsetenv("SHOAL_MEMORY_LIMIT");
    CHECK(budget.which == Budget::Which::kSetting);
    CHECK(budget.allowed == 1u << 20);
    CHECK(looks == 1);
  }
}

TEST_CASE("budget: sizes are read with and without unit, anything else is named") {
  CHECK(parse_bytes("1048576", "X") == 1u << 20);
  CHECK(parse_bytes("1.5M", "X") == 3u << 19);
  CHECK(parse_bytes("2GiB", "X") == 2ull << 30);
  CHECK(parse_bytes("1t", "X") == 1ull << 40);
  CHECK(parse_bytes("0", "X") == 0);
  for (const char* bad : {"", "lots", "-1", "5 apples", "1Q", "nan", "1e40", "M"})
    CHECK_THROWS_WITH(parse_bytes(bad, "SHOAL_X"), ContainsSubstring("SHOAL_X is '" + std::string(bad) + "'"));
}
