#include <shoal/internal/runtime/cpu/limits.h>

#include <shoal/internal/runtime/cpu/cpu_share.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// A folder that looks like the kernel's files.
class FakeKernel {
 public:
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(folder_.file(path)).parent_path());
    std::ofstream(folder_.file(path)) << text;
  }
  void use_version_2(const std::string& group, const std::string& part = "/") const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo", "41 31 0:38 " + part + " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  }
  void use_version_1(const std::string& group) const {
    write("/proc/self/cgroup", "5:cpu,cpuacct:" + group + "\n4:memory:/elsewhere\n");
    write("/proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  }
  CpuLimits limits() const { return CpuLimits(folder_.path()); }

 private:
  const test::TemporaryFolder folder_;
};

TEST_CASE("cpu limits: without a cgroup, or without a quota, there is none") {
  FakeKernel kernel;
  CHECK_FALSE(kernel.limits().cgroup_quota());
  kernel.use_version_2("/job");
  CHECK_FALSE(kernel.limits().cgroup_quota());
  kernel.write("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
  CHECK_FALSE(kernel.limits().cgroup_quota());
  kernel.use_version_1("/job");
  kernel.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  kernel.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(kernel.limits().cgroup_quota());
}

TEST_CASE("cpu limits: the least quota on the way up counts, in version 2") {
  FakeKernel kernel;
  kernel.use_version_2("/slice/job");
  kernel.write("/sys/fs/cgroup/slice/job/cpu.max", "400000 100000\n");
  CHECK(kernel.limits().cgroup_quota() == 4.0);
  kernel.write("/sys/fs/cgroup/slice/cpu.max", "25000 10000\n");
  CHECK(kernel.limits().cgroup_quota() == 2.5);
}

TEST_CASE("cpu limits: version 1, and a container that sees its own part of a hierarchy only") {
  FakeKernel kernel;
  kernel.use_version_1("/job");
  kernel.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n");
  kernel.write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  CHECK(kernel.limits().cgroup_quota() == 1.5);
  kernel.use_version_2("/docker/4af1", "/docker/4af1");
  kernel.write("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  CHECK(kernel.limits().cgroup_quota() == 3.0);
}

TEST_CASE("cpu limits: nonsense in the files is no quota") {
  FakeKernel kernel;
  kernel.use_version_2("/job");
  for (const char* text : {"", "lots\n", "100000\n", "100000 0\n", "-5 100000\n"}) {
    kernel.write("/sys/fs/cgroup/job/cpu.max", text);
    CHECK_FALSE(kernel.limits().cgroup_quota());
  }
}

TEST_CASE("cpu limits: what can be kept busy is the least of affinity and quota, rounded up, and at least one") {
  FakeKernel kernel;
  const int allowed = CpuSet::of_this_thread().count();
  CHECK(usable_cpus(kernel.limits()) == allowed);
  kernel.use_version_2("/job");
  kernel.write("/sys/fs/cgroup/job/cpu.max", "10000 100000\n");
  CHECK(usable_cpus(kernel.limits()) == 1);
  kernel.write("/sys/fs/cgroup/job/cpu.max", "110000 100000\n");
  CHECK(usable_cpus(kernel.limits()) == std::min(2, allowed));
  kernel.write("/sys/fs/cgroup/job/cpu.max", "100000000 100000\n");
  CHECK(usable_cpus(kernel.limits()) == allowed);
}

}  // namespace
}  // namespace shoal
