#include <shoal/internal/ipc/process/liveness.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <span>
#include <utility>

namespace shoal {
namespace {

/// Whether /proc/PID/maps has the file; nothing if that is empty, or cannot be read.
std::optional<bool> shows_mapping(const char* maps, const OwnFile& mapped) {
  const Fd file = lift(Fd(::open(maps, O_RDONLY | O_CLOEXEC)));
  if (!file) return std::nullopt;
  char part[4096], line[100];  // of a line, what comes before the path
  std::size_t length = 0;
  bool has_lines = false;
  for (ssize_t got; (got = ::read(file.get(), part, sizeof part)) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    for (const char letter : std::span(part, std::size_t(got))) {
      if (letter != '\n') {
        if (length < sizeof line - 1) line[length++] = letter;
        continue;
      }
      line[std::exchange(length, 0)] = '\0';
      has_lines = true;
      unsigned major = 0, minor = 0;
      unsigned long long inode = 0;
      // begin-end access offset MAJOR:MINOR INODE path
      if (::sscanf(line, "%*s %*s %*s %x:%x %llu", &major, &minor, &inode) == 3 &&
          ::makedev(major, minor) == mapped.device() && inode == mapped.inode())
        return true;
    }
  }
  if (!has_lines) return std::nullopt;
  return false;
}

struct flock byte_lock(short type, std::uint32_t slot) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Fd LivenessFile::make_file() {
  Fd file = lift(Fd(::memfd_create("shoal-liveness", MFD_CLOEXEC)));
  if (!file) throw SystemError("creating the session's liveness file", errno);
  if (::ftruncate(file.get(), ProcessTag::kSlotCount) != 0) throw SystemError("sizing the liveness file", errno);
  return file;
}

bool LivenessFile::take(std::uint32_t slot) const {
  struct flock lock = byte_lock(F_WRLCK, slot);
  if (::fcntl(file_.descriptor(), F_SETLK, &lock) == 0) return true;
  if (errno == EACCES || errno == EAGAIN) return false;
  throw SystemError(fmt::format("locking liveness byte {}", slot), errno);
}

void LivenessFile::give_back(std::uint32_t slot) const {
  struct flock lock = byte_lock(F_UNLCK, slot);
  ::fcntl(file_.descriptor(), F_SETLK, &lock);
}

bool LivenessFile::is_taken(std::uint32_t slot) const {
  if (!file_.is_open()) {
    static std::atomic<bool> said{false};
    // relaxed: who is first says it, and nothing else hangs on it.
    if (!said.exchange(true, std::memory_order_relaxed))
      log_warning(
          "this program has closed the session's liveness file, whose descriptor it had not opened: from now on, who "
          "lives is told by pids alone, and this process can start none by spawn");
    return false;
  }
  struct flock lock = byte_lock(F_WRLCK, slot);
  // An error says nothing about the process: call it alive, since a wrong "dead" hands living memory away.
  return ::fcntl(file_.descriptor(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::uint64_t process_start_time(std::int32_t pid) {
  // Raw reads: this runs on the way out of waits, and in signal-time paths of the launchers.
  char path[40], text[1024];
  ::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  Fd file = lift(Fd(::open(path, O_RDONLY | O_CLOEXEC)));
  if (!file) return 0;
  ssize_t size = ::read(file.get(), text, sizeof text - 1);
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* field = ::strrchr(text, ')');  // the name may hold spaces and parentheses
  if (!field) return 0;
  field += 2;  // now at field 3, the state
  const char state = *field;
  for (int number = 3; number < 20 && field; ++number) {
    field = ::strchr(field, ' ');
    if (field) ++field;
  }
  // Fields 20 to 22. A killed process is a zombie by its first thread; until its last one is gone, its files may be open:
  // locks, ports, the driver's memory.
  long threads = 0;
  unsigned long long start = 0;
  if (!field || ::sscanf(field, "%ld %*d %llu", &threads, &start) != 2) return 0;
  return state == 'X' || (state == 'Z' && threads <= 1) ? 0 : start;
}

std::uint64_t process_clock() {
  // Not kept in a static: a child that is forked while another thread initializes that would wait for it for ever. The
  // C library knows the number, without a system call.
  const auto ticks_per_second = std::uint64_t(::sysconf(_SC_CLK_TCK));
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::uint64_t(now.tv_sec) * ticks_per_second + std::uint64_t(now.tv_nsec) / (1'000'000'000 / ticks_per_second);
}

std::uint32_t own_pid_space() noexcept {
  // With the number of forks, which may lead into another one.
  static constinit std::atomic<std::uint64_t> known{0};
  const std::uint64_t forks = std::uint64_t(fork_count()) << 32;
  if (const std::uint64_t word = known.load(std::memory_order_relaxed);  // relaxed: the word is all there is
      std::uint32_t(word) != 0 && word - std::uint32_t(word) == forks)
    return std::uint32_t(word);
  struct stat status{};
  if (::stat("/proc/self/ns/pid", &status) != 0) return 0;
  const auto space = std::uint32_t(status.st_ino);        // the kernel has no more bits, either
  known.store(forks | space, std::memory_order_relaxed);  // relaxed: likewise
  return space;
}

bool is_own_pid_space(std::uint32_t space) noexcept {
  const std::uint32_t own = own_pid_space();
  return space == own || space == 0 || own == 0;
}

bool has_surely_not_mapped(std::int32_t pid, const OwnFile& file) {
  char path[40];
  ::snprintf(path, sizeof path, "/proc/%d/maps", pid);
  // Itself, too: where that is not found, the numbers of files are others there, as under some sandboxes.
  return shows_mapping(path, file) == false && shows_mapping("/proc/self/maps", file) == true;
}

bool process_exists(std::int32_t pid, std::uint64_t when) {
  // Signal 0 is sent to nobody; the question takes one system call, where files below /proc take several.
  if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) return false;
  if (std::uint64_t start = process_start_time(pid)) return start <= when;
  // /proc/PID/stat unreadable: gone or zombie, unless it was for want of descriptors or memory.
  return ::access("/proc/self/stat", R_OK) != 0 ||
         (errno = 0, !lift(Fd(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC))));
}

}  // namespace shoal
