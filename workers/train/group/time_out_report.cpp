#include <shoal/internal/workers/train/group/time_out_report.h>

#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/report/stuck_report.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/ipc/log.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>

namespace shoal {

std::string report_time_out(GroupLayout& layout, IdleRanks idle) {
  constexpr std::size_t kRows = 10;
  constexpr std::chrono::milliseconds kPatience{300};
  // relaxed: decides who reports, and passes nothing on.
  if (layout.flight(0).told.exchange(1, std::memory_order_relaxed) != 0) return "";
  try {
    const auto file = SessionFile::of_process(::getpid());
    if (!file) return "";
    const SessionView view = look_at(*file);
    const auto payload = std::uint64_t(reinterpret_cast<std::byte*>(&layout) - SessionCore::current().base());
    const std::vector<SeenGroup> groups = look_at_groups(*file, view, kRows);
    const auto own = std::ranges::find(groups, payload, &SeenGroup::payload);
    if (own == groups.end()) return "";
    const std::string text = report_group(*file, view, *own, kRows, kPatience, idle);
    // At once, so that it does not mix with what other ranks say.
    if (logs(LogLevel::kError)) std::fwrite(text.data(), 1, text.size(), stderr);
    return text.substr(0, text.find('\n'));
  } catch (const std::exception&) {
    return "";  // the time-out is to be told, whatever keeps this from being told
  }
}

}  // namespace shoal
