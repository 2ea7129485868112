#include <shoal/internal/runtime/command/output/log_folder.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace shoal::command {
namespace {

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw SystemError(fmt::format("making the folder {}", path), error.value(), "give another --log-dir");
}

}  // namespace

LogFolder::File LogFolder::open(int attempt, int local_rank, const char* name) {
  if (path_.empty()) {
    std::string id = run_id_;
    std::ranges::replace(id, '/', '_');
    const char* temporary = std::getenv("TMPDIR");
    const std::string base = !base_.empty() ? base_ : temporary && *temporary ? temporary : "/tmp";
    make_folders(base);
    // Of this user's own: a folder for all runs would belong to whoever came first.
    std::string path = fmt::format("{}/{}{}_XXXXXX", base, base_.empty() ? "shoal-run-" : "", id);
    if (!::mkdtemp(path.data()))
      throw SystemError(fmt::format("making a folder in {}", base), errno, "give another --log-dir");
    path_ = path;
  }
  const std::string folder = fmt::format("{}/attempt_{}/{}", path_, attempt, local_rank);
  make_folders(folder);
  File result{Fd(), fmt::format("{}/{}", folder, name)};
  result.file = lift(Fd(::open(result.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644)));
  if (!result.file) throw SystemError(fmt::format("making the file {}", result.path), errno);
  return result;
}

}  // namespace shoal::command
