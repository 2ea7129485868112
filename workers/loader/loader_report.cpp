#include <shoal/workers/data/loader_report.h>

#include <cstddef>

namespace shoal::detail {

void append(LoaderReport& report, const BatchNotes& notes) {
  constexpr std::size_t kMostWarnings = 1000;  // a damaged file warns in every epoch
  report.faults.insert(report.faults.end(), notes.faults.begin(), notes.faults.end());
  report.warning_count += std::int64_t(notes.warnings.size());
  for (const SampleWarning& warning : notes.warnings)
    if (report.warnings.size() < kMostWarnings) report.warnings.push_back(warning);
}

}  // namespace shoal::detail
