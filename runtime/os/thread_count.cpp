#include <shoal/internal/runtime/os/thread_count.h>

#include <shoal/internal/ipc/fork/service_thread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace shoal {

namespace {

/// One system call in place of many: the kernel counts a link for each thread of the folder, beside the two that every
/// folder has. False if it does not count so.
bool has_one_link() {
  struct stat about;
  return ::stat("/proc/self/task", &about) == 0 && about.st_nlink == 3;
}

}  // namespace

bool is_only_thread() {
  if (has_one_link()) return true;
  std::error_code gone;
  const auto threads = std::filesystem::directory_iterator("/proc/self/task", gone);
  return !gone && std::distance(begin(threads), end(threads)) == 1;
}

std::vector<std::string> other_threads() {
  if (has_one_link()) return {};
  std::vector<std::string> names;
  std::error_code gone;  // threads end while one looks
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    pid_t thread = pid_t(std::stol(task.path().filename()));
    if (thread == ::gettid() || is_service_thread(thread)) continue;
    std::string name;
    if (std::getline(std::ifstream(task.path() / "comm"), name)) names.push_back(name);
  }
#ifdef __SANITIZE_THREAD__
  if (!names.empty()) names.pop_back();  // its background thread, which it stops and restarts around a fork
#endif
  return names;
}

}  // namespace shoal
