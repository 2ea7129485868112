#include <shoal/ipc/log.h>

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace shoal::detail {
namespace {

/// A write to a pipe of up to this many bytes is never mixed with others (PIPE_BUF).
constexpr std::size_t kLongest = 4096;
constexpr const char* kNames[] = {"debug", "info", "warning", "error", "none"};

int read_threshold() noexcept {
  const char* setting = std::getenv("SHOAL_LOG");
  if (!setting || setting[0] == '\0') return int(LogLevel::kWarning);
  const auto* found = std::ranges::find_if(kNames, [&](const char* name) { return ::strcmp(name, setting) == 0; });
  if (found != std::end(kNames)) return int(found - std::begin(kNames));
  threshold = int(LogLevel::kWarning);
  log_warning("SHOAL_LOG is '{}': give debug, info, warning, error or none", setting);
  return int(LogLevel::kWarning);
}

/// The file's place in the source tree, whatever folder the compiler was called in.
std::string_view short_name(std::string_view file) {
  for (const std::string_view folder : {"/ipc/", "/runtime/", "/tensors/", "/workers/", "/tests/"})
    if (const auto at = file.rfind(folder); at != std::string_view::npos) return file.substr(at + 1);
  return file;
}

/// "train (rank 3), pid 4711": as far as this process has a name.
std::string who() {
  const ProcessName name_of =
      process_name.load(std::memory_order_acquire);  // A1: pairs with R1 in SessionCore::install
  const std::string name = name_of ? name_of() : std::string();
  return fmt::format("{}{}pid {}", name, name.empty() ? "" : ", ", ::getpid());
}

}  // namespace

bool is_wanted(LogLevel level) noexcept {
  int wanted = threshold.load(std::memory_order_relaxed);  // relaxed: all who read the setting find the same
  if (wanted == kUnset) {
    const int saved = errno;
    wanted = read_threshold();
    threshold = wanted;
    errno = saved;
  }
  return int(level) >= wanted;
}

void say(LogLevel level, const std::source_location& place, std::string_view text) noexcept {
  const int saved = errno;
  try {
    timespec time{};
    ::clock_gettime(CLOCK_REALTIME, &time);
    tm local{};
    ::localtime_r(&time.tv_sec, &local);
    std::string line =
        fmt::format("{:02}:{:02}:{:02}.{:06} shoal {} [{}] {}:{}: {}", local.tm_hour, local.tm_min, local.tm_sec,
                    time.tv_nsec / 1000, kNames[int(level)], who(), short_name(place.file_name()), place.line(), text);
    std::ranges::replace(line, '\n', ' ');
    if (line.size() >= kLongest) line.resize(kLongest - 1);
    line += '\n';
    while (::write(STDERR_FILENO, line.data(), line.size()) < 0 && errno == EINTR) {
    }
  } catch (const std::exception&) {
    // No memory: then not.
  }
  errno = saved;
}

}  // namespace shoal::detail
