#include <shoal/ipc/log.h>

#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/session.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using shoal::test::Forked;

namespace {

/// Counts how often one is formatted.
struct Costly {
  int* formatted;
};

/// What a process with this setting (null: none) says on stderr.
std::string said(const char* setting, const std::function<void()>& body) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::string text;
  {
    Forked child([&] {
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[1]);
      setting ? ::setenv("SHOAL_LOG", setting, 1) : ::unsetenv("SHOAL_LOG");
      shoal::detail::threshold = shoal::detail::kUnset;
      body();
    });
    ::close(ends[1]);
    char bytes[8192];
    for (ssize_t got; (got = ::read(ends[0], bytes, sizeof bytes)) > 0;) text.append(bytes, std::size_t(got));
    ::close(ends[0]);
    CHECK(child.join() == 0);
  }
  return text;
}

void say_all() {
  shoal::log_debug("level {}", 0);
  shoal::log_info("level {}", 1);
  shoal::log_warning("level {}", 2);
  shoal::log_error("level {}", 3);
}

long count(const std::string& text, const std::string& part) {
  long found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

template <>
struct fmt::formatter<Costly> : fmt::formatter<int> {
  template <class Context>
  auto format(const Costly& value, Context& context) const {
    return fmt::formatter<int>::format(++*value.formatted, context);
  }
};

TEST_CASE("log: SHOAL_LOG says from which level on, and warnings are said without it") {
  CHECK(count(said(nullptr, say_all), "level") == 2);
  CHECK(count(said("", say_all), "level") == 2);
  CHECK(count(said("debug", say_all), "level") == 4);
  CHECK(count(said("info", say_all), "level") == 3);
  CHECK(count(said("warning", say_all), "level") == 2);
  CHECK(count(said("error", say_all), "level") == 1);
  CHECK(said("none", say_all).empty());
}

TEST_CASE("log: a setting that is none is said once, and counts as warning") {
  const std::string text = said("verbose", say_all);
  CHECK(count(text, "SHOAL_LOG is 'verbose': give debug, info, warning, error or none") == 1);
  CHECK(count(text, "level") == 2);
}

TEST_CASE("log: a line has time, level, process, place and text") {
  const std::string line = said("info", [] {
    shoal::SessionCore::current().describe_self("train 3", 3);
    shoal::log_info("{} of {}", "two", 5);
  });
  CHECK_THAT(line, ContainsSubstring(" shoal info [train 3 (rank 3), pid "));
  CHECK_THAT(line,
             ContainsSubstring("] tests/ipc/text/log_test.cpp:") || ContainsSubstring("] ipc/text/log_test.cpp:"));
  CHECK_THAT(line, EndsWith(": two of 5\n"));
  CHECK(line[2] == ':');
  CHECK(line[8] == '.');
}

TEST_CASE("log: one line a message, whatever is in it, and of a length that pipes do not mix") {
  const std::string text = said("debug", [] {
    shoal::log_debug("several\nlines\n{}", "here");
    shoal::log_debug("{}", std::string(10'000, 'x'));
  });
  CHECK(count(text, "\n") == 2);
  CHECK_THAT(text, ContainsSubstring("several lines here\n"));
  CHECK(text.substr(text.find('\n') + 1).size() == 4096);
}

TEST_CASE("log: lines of several processes do not mix") {
  const std::string text = said("debug", [] {
    auto talk = [](char letter) {
      return [letter] {
        for (int i = 0; i < 300; ++i) shoal::log_debug("begin {} end", std::string(500, letter));
      };
    };
    Forked first(talk('a')), second(talk('b')), third(talk('c'));
    first.join();
    second.join();
    third.join();
  });
  CHECK(count(text, "begin ") == 900);
  for (const char letter : {'a', 'b', 'c'}) CHECK(count(text, "begin " + std::string(500, letter) + " end\n") == 300);
}

TEST_CASE("log: what is not wanted is not formatted, and errno is left alone") {
  int formatted = 0;
  const std::string text = said("info", [&] {
    shoal::log_debug("{}", Costly{&formatted});
    if (formatted != 0) ::_exit(2);
    errno = EXDEV;
    shoal::log_info("{}", Costly{&formatted});
    if (formatted != 1 || errno != EXDEV) ::_exit(3);
  });
  CHECK(count(text, "\n") == 1);
}
