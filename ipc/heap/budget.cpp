#include <fmt/format.h>
#include <shoal/ipc/heap/budget.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <stdexcept>

namespace shoal {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value;
  if (file >> value) return value;  // "max" in cgroup v2 does not parse: no limit
  return std::nullopt;
}

std::optional<std::uint64_t> machine_left() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::uint64_t kib;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib << 10;
    file.ignore(256, '\n');
  }
  return std::nullopt;
}

/// The tightest limit on the way from this process's cgroup up to the root.
std::optional<std::uint64_t> tightest(const std::string& mount, std::string path, const char* limit_file,
                                      const char* usage_file) {
  std::optional<std::uint64_t> left;
  for (;;) {
    auto limit = read_number(mount + path + "/" + limit_file);
    auto usage = read_number(mount + path + "/" + usage_file);
    if (limit && usage && *limit < (1ull << 62)) {
      std::uint64_t here = *limit > *usage ? *limit - *usage : 0;
      if (!left || here < *left) left = here;
    }
    if (path.empty() || path == "/") return left;
    path.resize(path.rfind('/'));
  }
}

std::optional<std::uint64_t> cgroup_left() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty())
      if (auto left = tightest("/sys/fs/cgroup", path, "memory.max", "memory.current")) return left;
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      if (auto left = tightest("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes"))
        return left;
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t parse_bytes(const std::string& text, const std::string& what) {
  std::size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
  }
  std::string unit = text.substr(end);
  if (!unit.empty() && (unit.ends_with("B") || unit.ends_with("b"))) unit.pop_back();
  if (!unit.empty() && unit.ends_with("i")) unit.pop_back();
  static constexpr const char* kUnits = "KMGT";
  int shift = -1;
  if (unit.empty()) shift = 0;
  for (int i = 0; i < 4; ++i)
    if (unit.size() == 1 && (unit[0] == kUnits[i] || unit[0] == kUnits[i] + 32)) shift = 10 * (i + 1);
  if (!(value >= 0) || value > 1e15 || shift < 0)
    throw std::invalid_argument(
        fmt::format("{} is '{}': give a number of bytes, with K, M, G or T behind it if you like", what, text));
  return std::uint64_t(value * double(1ull << shift));
}

Budget Budget::now(std::uint64_t committed, std::uint64_t resident) {
  std::uint64_t promised = committed > resident ? committed - resident : 0;
  Budget budget{kNoLimit, "no limit"};
  auto tighten = [&](std::uint64_t allowed, const char* name) {
    if (allowed < budget.allowed) budget = {allowed, name};
  };
  auto from_left = [&](std::uint64_t left) { return committed + (left > promised ? left - promised : 0); };
  if (const char* setting = std::getenv("SHOAL_MEMORY_LIMIT"))
    tighten(parse_bytes(setting, "SHOAL_MEMORY_LIMIT"), "SHOAL_MEMORY_LIMIT");
  if (auto left = cgroup_left()) tighten(from_left(*left), "the cgroup's memory limit");
  if (auto left = machine_left()) tighten(from_left(*left), "the machine's available memory");
  return budget;
}

}  // namespace shoal
