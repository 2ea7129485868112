// What a process says on stderr.
#pragma once

#include <shoal/ipc/log.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>

#include "tests/support/forked.h"

namespace shoal::test {

/// Runs the body in a forked process, whose log is as it is where SHOAL_LOG is not set, and returns all that it and the
/// processes that it forks have written to stderr. Throws std::runtime_error if it ends otherwise than by returning.
inline std::string said_by(const std::function<void()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::string text;
  int result = 0;
  {
    Forked child([&] {
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      ::unsetenv("SHOAL_LOG");
      detail::threshold = detail::kUnset;
      body();
    });
    ::close(ends[1]);
    char bytes[8192];
    for (ssize_t got; (got = ::read(ends[0], bytes, sizeof bytes)) > 0;) text.append(bytes, std::size_t(got));
    ::close(ends[0]);
    result = child.join();
  }
  if (result != 0) throw std::runtime_error("the process ended with " + std::to_string(result) + ": " + text);
  return text;
}

/// How often the part is in the text.
inline long times_in(const std::string& text, const std::string& part) {
  long found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace shoal::test
