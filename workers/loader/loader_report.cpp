#include <shoal/workers/data/loader_report.h>

#include <cstddef>

namespace shoal::detail {

void append(LoaderReport& report, const BatchNotes& notes) {
  constexpr std::size_t kMostFaults = 10'000, kMostWarnings = 1000;  // a damaged file has some in every epoch
  report.fault_count += std::int64_t(notes.faults.size());
  for (const SampleFault& fault : notes.faults)
    if (report.faults.size() < kMostFaults) report.faults.push_back(fault);
  report.warning_count += std::int64_t(notes.warnings.size());
  for (const SampleWarning& warning : notes.warnings)
    if (report.warnings.size() < kMostWarnings) report.warnings.push_back(warning);
}

}  // namespace shoal::detail
