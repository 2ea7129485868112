#include <fmt/format.h>
#include <shoal/ipc/heap/budget.h>
#include <shoal/ipc/heap/memory_limits.h>

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
    case Which::kNone:
      break;
  }
  return "no limit";
}

Budget Budget::now(std::uint64_t committed, std::uint64_t resident, const MemoryLimits& limits) {
  // What is promised but not written yet is missing from nobody's "left" so far.
  std::uint64_t promised = committed > resident ? committed - resident : 0;
  Budget budget{kNoLimit, Which::kNone, name(Which::kNone)};
  auto tighten = [&](std::uint64_t allowed, Which which) {
    if (allowed < budget.allowed) budget = {allowed, which, name(which)};
  };
  auto from_left = [&](std::uint64_t left) { return committed + (left > promised ? left - promised : 0); };
  if (const char* setting = std::getenv("SHOAL_MEMORY_LIMIT"))
    tighten(parse_bytes(setting, "SHOAL_MEMORY_LIMIT"), Which::kSetting);
  if (auto left = limits.cgroup_left()) tighten(from_left(*left), Which::kCgroup);
  if (auto left = limits.machine_left()) tighten(from_left(*left), Which::kMachine);
  return budget;
}

}  // namespace shoal
