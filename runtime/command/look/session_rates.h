// What changed in a session from one look to the next.
#pragma once

#include <shoal/internal/ipc/observe/session_view.h>

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace shoal::command {

/// Nothing if there is no earlier look, or the process or queue was not there yet, or is another one by now. A plain
/// value; both views may be gone.
class SessionRates {
 public:
  struct Messages {
    double in, out;  // a second
  };

  SessionRates() = default;
  SessionRates(const SessionView& before, const SessionView& now);

  double seconds() const { return seconds_; }
  /// 100 is one CPU.
  std::optional<double> cpu_percent(const SeenProcess& process) const;
  std::optional<Messages> messages(const SeenQueue& queue) const;

 private:
  double seconds_ = 0;
  std::unordered_map<pid_t, double> cpu_;
  std::unordered_map<std::uint64_t, Messages> messages_;
};

}  // namespace shoal::command
