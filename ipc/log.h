// What shoal does, said on stderr where somebody wants to know.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shoal {

/// How much a line matters. SHOAL_LOG names the least that is said; kNone: nothing is.
enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kNone = 4 };

namespace detail {

/// What is said from this level on; kUnset: SHOAL_LOG was not looked at yet.
constexpr int kUnset = -1;
inline constinit std::atomic<int> threshold{kUnset};
/// The slow half: reads SHOAL_LOG the first time.
bool is_wanted(LogLevel level) noexcept;
void say(LogLevel level, const std::source_location& place, std::string_view text) noexcept;
/// Says what this process is called; set by the session when there is one, which a log does not need to know.
using ProcessName = std::string (*)();
inline constinit std::atomic<ProcessName> process_name{nullptr};

template <class... Arguments>
struct Text {
  template <class String>
  consteval Text(const String& text, std::source_location where = std::source_location::current())
      : format(text), place(where) {}
  fmt::format_string<Arguments...> format;
  std::source_location place;
};

template <class... Arguments>
void format_and_say(LogLevel level, const std::source_location& place, fmt::format_string<Arguments...> format,
                    Arguments&&... arguments) noexcept {
  try {
    say(level, place, fmt::format(format, std::forward<Arguments>(arguments)...));
  } catch (const std::exception&) {
    say(level, place, "(a message that could not be formatted)");
  }
}

}  // namespace detail

/// Whether messages of this level are wanted: SHOAL_LOG is debug, info, warning (also where it is not set), error or
/// none. One load and a branch where they are not.
inline bool logs(LogLevel level) noexcept {
  if (int(level) < detail::threshold.load(std::memory_order_relaxed)) [[likely]]  // relaxed: a number
    return false;
  return detail::is_wanted(level);
}

/// `log_debug("started {} as {}", name, pid)`: a line on stderr with time, level, process and place, by one write(2),
/// so that the lines of several processes do not mix. The arguments are not formatted where the level is not wanted.
/// Any thread; not in signal handlers, and not between a fork with other threads and exec: both would allocate.
template <class... Arguments>
void log_debug(detail::Text<std::type_identity_t<Arguments>...> text, Arguments&&... arguments) noexcept {
  if (logs(LogLevel::kDebug)) [[unlikely]]
    detail::format_and_say<Arguments...>(LogLevel::kDebug, text.place, text.format,
                                         std::forward<Arguments>(arguments)...);
}
/// The same at level info.
template <class... Arguments>
void log_info(detail::Text<std::type_identity_t<Arguments>...> text, Arguments&&... arguments) noexcept {
  if (logs(LogLevel::kInfo)) [[unlikely]]
    detail::format_and_say<Arguments...>(LogLevel::kInfo, text.place, text.format,
                                         std::forward<Arguments>(arguments)...);
}
/// The same at level warning.
template <class... Arguments>
void log_warning(detail::Text<std::type_identity_t<Arguments>...> text, Arguments&&... arguments) noexcept {
  if (logs(LogLevel::kWarning)) [[unlikely]]
    detail::format_and_say<Arguments...>(LogLevel::kWarning, text.place, text.format,
                                         std::forward<Arguments>(arguments)...);
}
/// The same at level error.
template <class... Arguments>
void log_error(detail::Text<std::type_identity_t<Arguments>...> text, Arguments&&... arguments) noexcept {
  if (logs(LogLevel::kError)) [[unlikely]]
    detail::format_and_say<Arguments...>(LogLevel::kError, text.place, text.format,
                                         std::forward<Arguments>(arguments)...);
}

}  // namespace shoal
