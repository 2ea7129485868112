// Log messages: what shoal does, on stderr if SHOAL_LOG asks for it.
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

/// The lowest level that is written; kUnset until SHOAL_LOG was read.
constexpr int kUnset = -1;
inline constinit std::atomic<int> threshold{kUnset};
/// The slow half of logs(): reads SHOAL_LOG the first time.
bool is_wanted(LogLevel level) noexcept;
void say(LogLevel level, const std::source_location& place, std::string_view text) noexcept;
/// Returns this process's name. The session sets it, so that the log need not know the session.
using ProcessName = std::string (*)();
inline constinit std::atomic<ProcessName> process_name{nullptr};

template <class... Arguments>
struct Text {
  template <class String>
  explicit(false) consteval Text(const String& text, std::source_location where = std::source_location::current())
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

/// Whether messages of this level are written. SHOAL_LOG is debug, info, warning (the default), error or none. Costs
/// one load and a branch if the level is not wanted.
inline bool logs(LogLevel level) noexcept {
  if (int(level) < detail::threshold.load(std::memory_order_relaxed)) [[likely]]  // relaxed: a number
    return false;
  return detail::is_wanted(level);
}

/// `log_debug("started {} as {}", name, pid)` writes a line to stderr with time, level, process and place. One write(2)
/// writes it, so lines of several processes do not mix. Unwanted levels do not format their arguments. Threads: any.
/// Not in signal handlers, and not between a fork of a process with several threads and exec: it allocates.
template <class... Arguments>
void log_debug(detail::Text<std::type_identity_t<Arguments>...> text, Arguments&&... arguments) noexcept {
  if (logs(LogLevel::kDebug)) [[unlikely]]
    detail::format_and_say<Arguments...>(LogLevel::kDebug, text.place, text.format,
                                         std::forward<Arguments>(arguments)...);
}
/// Writes a line at level info if SHOAL_LOG asks for it.
template <class... Arguments>
void log_info(detail::Text<std::type_identity_t<Arguments>...> text, Arguments&&... arguments) noexcept {
  if (logs(LogLevel::kInfo)) [[unlikely]]
    detail::format_and_say<Arguments...>(LogLevel::kInfo, text.place, text.format,
                                         std::forward<Arguments>(arguments)...);
}
/// Writes a line at level warning if SHOAL_LOG asks for it.
template <class... Arguments>
void log_warning(detail::Text<std::type_identity_t<Arguments>...> text, Arguments&&... arguments) noexcept {
  if (logs(LogLevel::kWarning)) [[unlikely]]
    detail::format_and_say<Arguments...>(LogLevel::kWarning, text.place, text.format,
                                         std::forward<Arguments>(arguments)...);
}
/// Writes a line at level error if SHOAL_LOG asks for it.
template <class... Arguments>
void log_error(detail::Text<std::type_identity_t<Arguments>...> text, Arguments&&... arguments) noexcept {
  if (logs(LogLevel::kError)) [[unlikely]]
    detail::format_and_say<Arguments...>(LogLevel::kError, text.place, text.format,
                                         std::forward<Arguments>(arguments)...);
}

}  // namespace shoal
