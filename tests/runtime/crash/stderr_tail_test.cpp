// The end of what a process writes to stderr, and stderr as it was.
#include <fcntl.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/crash/exit_of.h"
#include "tests/runtime/start/methods.h"

namespace shoal {
namespace {

TEST_CASE("crash: the end of stderr arrives, by streams of C and of C++, however the process ends") {
  FOR_EACH_METHOD(method);
  Fd quiet(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  Fd before(::dup(2));
  ::dup2(quiet.get(), 2);
  const auto killed = [&] {
    return exit_of(method, [](int) {
      ::dup2(::open("/dev/null", O_WRONLY), 2);
      std::cerr << "first " << 1 << std::endl;
      ::fprintf(stderr, "second %d\n", 2);
      ::fputs("third", stderr);
      std::clog << std::string(3, '!') << std::flush;
      ::raise(SIGKILL);
    });
  }();
  const auto long_tale = exit_of(method, [](int) {
    ::dup2(::open("/dev/null", O_WRONLY), 2);
    for (int i = 0; i < 3000; ++i) ::fprintf(stderr, "line %d\n", i);
    std::cerr << std::string(5000, 'x') << "\nthe end\n";
    ::_exit(1);
  });
  ::dup2(before.get(), 2);
  CHECK(killed.stderr_tail() == "first 1\nsecond 2\nthird!!!");
  CHECK_THAT(killed.report(), ContainsSubstring("    | second 2\n"));
  CHECK(long_tale.stderr_tail().size() == CrashRecord::kTailBytes);
  CHECK_THAT(long_tale.stderr_tail(), EndsWith("xxx\nthe end\n"));
}

TEST_CASE("crash: what a process forks while its threads write to stderr can write there too") {
  FOR_EACH_METHOD(method);
  const auto failure = exit_of(method, [](int) {
    ::dup2(::open("/dev/null", O_WRONLY), 2);
    std::atomic<bool> done{false};
    std::vector<std::thread> writers;
    for (int i = 0; i < 2; ++i)
      writers.emplace_back([&] {
        while (!done) std::clog << "a line of a thread\n";
      });
    // A copy has no other thread: a lock that one had would stay locked.
    for (int i = 0; i < 300; ++i) {
      const pid_t copy = ::fork();
      if (copy == 0) {
        ::perror("a line of a copy");
        ::_exit(0);
      }
      while (::waitpid(copy, nullptr, 0) < 0 && errno == EINTR) continue;
    }
    done = true;
    for (auto& writer : writers) writer.join();
    ::fprintf(stderr, "the end\n");
    ::_exit(3);
  });
  CHECK(failure.exit_code() == 3);
  CHECK_THAT(failure.stderr_tail(), EndsWith("a line of a thread\nthe end\n"));
}

TEST_CASE("crash: what a copy writes that the function forks is none of the process's last words") {
  FOR_EACH_METHOD(method);
  const auto failure = exit_of(method, [](int) {
    ::dup2(::open("/dev/null", O_WRONLY), 2);
    ::fprintf(stderr, "of the process\n");
    const pid_t copy = ::fork();
    if (copy == 0) {
      // The record is the process's own, and goes with it; a copy may stay.
      ::fprintf(stderr, "of a copy\n");
      std::cerr << "of a copy\n";
      ::_exit(0);
    }
    while (::waitpid(copy, nullptr, 0) < 0 && errno == EINTR) continue;
    ::_exit(3);
  });
  CHECK(failure.stderr_tail() == "of the process\n");
}

TEST_CASE("crash: stderr stays descriptor 2, is what it was, and can be reopened") {
  FOR_EACH_METHOD(method);
  struct Seen {
    int number;
    bool reopened;
    std::string target;
  };
  const Seen seen = spawn({.start_method = method}, [](int) {
    Seen result{::fileno(stderr), false, ""};
    char path[] = "/tmp/shoal-stderr-XXXXXX";
    Fd file(::mkstemp(path));
    result.reopened = std::freopen(path, "w", stderr) != nullptr;
    ::fprintf(stderr, "into the file");
    ::fflush(stderr);
    char text[32] = "";
    if (::read(file.get(), text, sizeof text - 1) > 0) result.target = text;
    ::unlink(path);
    return result;
  })[0];
  CHECK(seen.number == 2);
  CHECK(seen.reopened);
  CHECK(seen.target == "into the file");
}

TEST_CASE("crash: wide characters to stderr come out") {
  FOR_EACH_METHOD(method);
  const std::string seen = spawn({.start_method = method}, [](int) {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(2);
    ::dup2(ends[1], 2);
    ::fwprintf(stderr, L"%ls of %d", L"wide words", 3);
    ::fputws(L" and more\n", stderr);
    char text[64] = "";
    if (::read(ends[0], text, sizeof text - 1) < 0) ::_exit(3);
    std::string all = text;
    while (!all.ends_with('\n')) {
      char one;
      if (::read(ends[0], &one, 1) != 1) break;
      all += one;
    }
    return all;
  })[0];
  CHECK(seen == "wide words of 3 and more\n");
}

}  // namespace
}  // namespace shoal
