// The bar that BetonWriter shows.
#pragma once

#include <shoal/workers/data/progress.h>

#include <cstdint>
#include <filesystem>
#include <optional>

namespace shoal::detail {

/// Samples a second, and the bytes so far. Without `shown` it does nothing. One thread.
class WriteProgress {
 public:
  WriteProgress(bool shown, std::int64_t samples, const std::filesystem::path& path);
  void show(std::int64_t samples, std::uint64_t bytes);
  void finish();

 private:
  std::optional<ProgressBar> bar_;
  std::uint64_t bytes_ = 0;
};

}  // namespace shoal::detail
