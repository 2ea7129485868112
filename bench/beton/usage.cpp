#include "bench/beton/usage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace shoal::bench {
namespace {

namespace fs = std::filesystem;

void add_below(pid_t pid, std::vector<pid_t>& found) {
  found.push_back(pid);
  std::error_code error;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) add_below(child, found);
  }
}

bool write_to(const fs::path& file, const std::string& text) {
  std::ofstream out(file);
  out << text << std::flush;
  return bool(out);
}

}  // namespace

std::vector<pid_t> processes_of(pid_t pid) {
  std::vector<pid_t> found;
  add_below(pid, found);
  return found;
}

double cpu_seconds(pid_t pid) {
  double ticks = 0;
  for (const pid_t each : processes_of(pid)) {
    std::ifstream stat(fmt::format("/proc/{}/stat", each));
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));  // the name may have blanks
    std::string skipped;
    for (int field = 3; field < 14; ++field) rest >> skipped;
    double user = 0, system = 0;
    rest >> user >> system;
    ticks += user + system;
  }
  return ticks / double(::sysconf(_SC_CLK_TCK));
}

Memory memory_of(pid_t pid) {
  Memory memory;
  for (const pid_t each : processes_of(pid)) {
    std::ifstream rollup(fmt::format("/proc/{}/smaps_rollup", each));
    for (std::string line; std::getline(rollup, line);) {
      std::istringstream words(line);
      std::string name;
      double kib = 0;
      words >> name >> kib;
      if (name == "Pss:") memory.all += kib / 1024;
      if (name == "Pss_Anon:" || name == "Pss_Shmem:") memory.own += kib / 1024;
    }
  }
  return memory;
}

LimitedMemory::LimitedMemory(std::uint64_t bytes) {
  const std::string name = fmt::format("shoal-bench-{}", ::getpid());
  for (const auto& [root, limit] :
       {std::pair{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, std::pair{"/sys/fs/cgroup", "memory.max"}}) {
    std::error_code error;
    if (!fs::exists(fs::path(root) / "cgroup.procs")) continue;
    const fs::path folder = fs::path(root) / name;
    if (!fs::create_directory(folder, error)) continue;
    if (fs::exists(folder / limit) && write_to(folder / limit, std::to_string(bytes))) {
      folder_ = folder;
      return;
    }
    fs::remove(folder, error);
  }
}

LimitedMemory::~LimitedMemory() {
  std::error_code error;
  if (is_there()) fs::remove(folder_, error);
}

std::vector<std::string> LimitedMemory::command(const std::vector<std::string>& words) const {
  std::vector<std::string> command = {"sh", "-c", "echo $$ > \"$0\" && exec \"$@\"",
                                      (folder_ / "cgroup.procs").native()};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

void forget_pages(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

}  // namespace shoal::bench
