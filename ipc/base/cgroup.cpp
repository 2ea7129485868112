#include <shoal/internal/ipc/base/cgroup.h>

#include <fstream>
#include <optional>
#include <sstream>

namespace shoal {
namespace {

/// One mounted hierarchy: where, and which part of it that is.
struct Mount {
  std::string point, part;
};

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// What of the path lies below that part: "/inner" of "/job/inner" below "/job". Empty if the part is not on the path,
/// as "/job_1" is not on "/job_12".
std::string path_below(const std::string& path, const std::string& part) {
  if (part == "/") return path;
  if (!path.starts_with(part)) return {};
  std::string rest = path.substr(part.size());
  return rest.starts_with('/') ? rest : std::string();
}

std::optional<Mount> find_mount(const std::string& root, const std::string& controller, bool version_2) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // id parent device PART POINT options [tags...] - TYPE source SUPER_OPTIONS
    auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string id, parent, device, type, source, super;
    Mount mount;
    before >> id >> parent >> device >> mount.part >> mount.point;
    after >> type >> source >> super;
    if (version_2 ? type == "cgroup2" : type == "cgroup" && has_word(super, controller)) return mount;
  }
  return std::nullopt;
}

}  // namespace

std::vector<CgroupFolder> cgroup_folders(const std::string& root, const std::string& controller) {
  std::vector<CgroupFolder> folders;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // number:CONTROLLERS:PATH, with no controllers in version 2
    auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && !has_word(controllers, controller)) continue;
    const auto mount = find_mount(root, controller, version_2);
    if (!mount) continue;
    // A container may see only its own part of the hierarchy, and yet be told its path from the top.
    std::string at = path_below(path, mount->part);
    for (;;) {
      while (!at.empty() && at.back() == '/') at.pop_back();
      folders.push_back({std::string(root).append(mount->point).append(at), version_2});
      if (at.empty()) break;
      at.resize(at.rfind('/'));
    }
  }
  return folders;
}

}  // namespace shoal
