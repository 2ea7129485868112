// Where the kernel shows the control groups of this process.
#pragma once

#include <string>
#include <vector>

namespace shoal {

/// The folder of one group, in version 1's or version 2's hierarchy: they name their files differently.
struct CgroupFolder {
  std::string path;
  bool version_2 = false;
};

/// This process's group of a controller ("memory", "cpu"), then those around it up to the root, in each version that is
/// mounted; none if there is none. Reads the kernel's files below `root`: "" is this machine, a test brings a folder
/// with a /proc and a /sys/fs/cgroup of its own. Any thread of any process.
std::vector<CgroupFolder> cgroup_folders(const std::string& root, const std::string& controller);

}  // namespace shoal
