#include <shoal/internal/ipc/memory/budget.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/memory/memory_limits.h>

#include <cstdlib>
#include <limits>
#include <stdexcept>

namespace shoal {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

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
  const double bytes = shift < 0 ? -1 : value * double(1ull << shift);
  if (!(bytes >= 0) || bytes > 0x1p62)
    throw std::invalid_argument(
        fmt::format("{} is '{}': give a number of bytes, with K, M, G or T behind it if you like", what, text));
  return std::uint64_t(bytes);
}

const char* Budget::name(Which which) {
  switch (which) {
    case Which::kSetting:
      return "SHOAL_MEMORY_LIMIT";
    case Which::kCgroup:
      return "the cgroup's memory limit";
    case Which::kMachine:
      return "the machine's available memory";
    case Which::kCommit:
      return "the machine's commit limit (vm.overcommit_memory is 2)";
    case Which::kNone:
      break;
  }
  return "no limit";
}

Budget Budget::of_setting() {
  const char* setting = std::getenv("SHOAL_MEMORY_LIMIT");
  return setting ? of(parse_bytes(setting, "SHOAL_MEMORY_LIMIT"), Which::kSetting) : of(kNoLimit, Which::kNone);
}

Budget Budget::of_kernel(std::uint64_t committed, std::uint64_t resident, const MemoryLimits& limits) {
  // What is promised but not written yet is missing from nobody's "left" so far.
  const std::uint64_t promised = committed > resident ? committed - resident : 0;
  Budget budget = of(kNoLimit, Which::kNone);
  auto tighten = [&](std::optional<std::uint64_t> left, Which which) {
    if (left) budget = budget.lower(of(committed + (*left > promised ? *left - promised : 0), which));
  };
  tighten(limits.cgroup_left(), Which::kCgroup);
  tighten(limits.machine_left(), Which::kMachine);
  tighten(limits.commit_left(), Which::kCommit);
  return budget;
}

Budget Budget::now(std::uint64_t committed, std::uint64_t resident, const MemoryLimits& limits) {
  return of_setting().lower(of_kernel(committed, resident, limits));
}

}  // namespace shoal
