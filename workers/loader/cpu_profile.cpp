#include <shoal/workers/data/cpu_profile.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/fd.h>
#include <sys/stat.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <set>
#include <stdexcept>
#include <utility>

namespace shoal {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

std::atomic<bool> one_runs{false};

/// Of a file that is there; 0: there is none.
ino_t inode_of(const std::string& file) {
  struct stat status{};
  return ::stat(file.c_str(), &status) == 0 ? status.st_ino : 0;
}

/// libtorch's profiler writes FILE.tmp and renames it: over whatever has the name, a device or a pipe, too.
void check_writable(const std::string& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw std::invalid_argument(fmt::format("CpuProfile: {} is there and no regular file; name another one", file));
  const std::string beside = file + ".tmp";
  if (const Fd made = lift(Fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666))); made)
    ::unlink(beside.c_str());
  else if (errno != EEXIST)
    throw SystemError(fmt::format("CpuProfile: opening {} for writing", file), errno,
                      "name a file in a folder that can be written to");
}

/// libtorch's profiler writes a line to stderr if writing fails, and no error.
bool is_whole(const std::string& file) {
  std::ifstream written(file, std::ios::binary);
  written.seekg(0, std::ios::end);
  for (std::streamoff at = written.tellg(); --at >= 0;) {
    written.seekg(at);
    if (const int last = written.peek(); last != '\n' && last != ' ') return last == '}' || last == ']';
  }
  return false;
}

}  // namespace

CpuProfile::CpuProfile(std::string file) : file_(std::move(file)) {
  if (one_runs.exchange(true))
    throw std::logic_error("CpuProfile: another one is recording; one at a time in a process");
  try {
    check_writable(file_);
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                       /*report_input_shapes=*/true);
    const std::set<ActivityType> activities{ActivityType::CPU};
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities);
    running_ = true;
  } catch (...) {
    one_runs = false;
    throw;
  }
}

CpuProfile::~CpuProfile() {
  if (!running_) return;
  try {
    (void)profiler::disableProfiler();
  } catch (const std::exception&) {
    // Stopped by somebody else: there is nothing to stop.
  }
  one_runs = false;
}

void CpuProfile::write() {
  if (!running_) throw std::logic_error("CpuProfile::write: it was written before");
  const auto result = profiler::disableProfiler();
  running_ = false;
  one_runs = false;
  const ino_t before = inode_of(file_);
  result->save(file_);
  if (inode_of(file_) == before || !is_whole(file_))
    throw Error(fmt::format("CpuProfile: {} could not be written; is the folder gone, or the disk full?", file_));
}

}  // namespace shoal
