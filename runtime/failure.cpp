#include <fmt/format.h>
#include <shoal/runtime/failure.h>

namespace shoal {
namespace {

std::string describe(const ProcessIdentity& who) {
  if (who.rank < 0) return fmt::format("process '{}' (pid {})", who.name, who.pid);
  return fmt::format("rank {} (pid {})", who.rank, who.pid);
}

std::string describe(const ExitStatus& status) {
  if (status.unknown)
    return "ended, and how is not known: the fork server died, SIGCHLD is ignored, or other code of the program waits "
           "for any child";
  if (status.signal) return fmt::format("was killed by {}", signal_name(status.signal));
  return fmt::format("exited with code {} before its function had returned", status.code);
}

}  // namespace

ProcessFailed::ProcessFailed(ProcessIdentity who, const std::string& what_happened)
    : Error(fmt::format("{} {}", describe(who), what_happened)), who_(std::move(who)) {}

ProcessRaised::ProcessRaised(ProcessIdentity who, std::string exception_type, std::string exception_message)
    : ProcessFailed(std::move(who), fmt::format("raised {}: {}", exception_type, exception_message)),
      type_(std::move(exception_type)),
      message_(std::move(exception_message)) {}

ProcessExited::ProcessExited(ProcessIdentity who, ExitStatus status)
    : ProcessFailed(std::move(who), describe(status)), status_(status) {}

std::optional<int> ProcessExited::exit_code() const noexcept {
  if (status_.signal || status_.unknown) return std::nullopt;
  return status_.code;
}

}  // namespace shoal
