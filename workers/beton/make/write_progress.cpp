#include <shoal/internal/workers/beton/make/write_progress.h>

#include <fmt/format.h>

#include <string>

namespace shoal::detail {
namespace {

std::string written(std::uint64_t bytes, double seconds) {
  const double mib = double(bytes) / double(1U << 20U);
  return fmt::format("{:.1f} MiB, {:.1f} MiB/s", mib, seconds > 0 ? mib / seconds : 0);
}

}  // namespace

WriteProgress::WriteProgress(bool shown, std::int64_t samples, const std::filesystem::path& path) {
  if (shown) bar_.emplace(ProgressBarOptions{.total = samples, .label = path.filename().native()});
}

void WriteProgress::show(std::int64_t samples, std::uint64_t bytes) {
  bytes_ = bytes;
  if (bar_) bar_->update(samples, written(bytes, bar_->seconds()));
}

void WriteProgress::finish() {
  if (bar_) bar_->finish(written(bytes_, bar_->seconds()));
}

}  // namespace shoal::detail
