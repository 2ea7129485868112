#include <cxxabi.h>
#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/runtime/crash/exit_of.h"
#include "tests/runtime/start/methods.h"

namespace shoal {

// What the traces below have to show. Not inlined, and with names of their own.
__attribute__((noinline)) void crash_by_null(volatile int* nowhere) { *nowhere = 1; }
__attribute__((noinline)) void crash_by_call(void (*nowhere)()) {
  asm volatile("" : "+r"(nowhere));
  nowhere();
  asm volatile("");  // no tail call
}
__attribute__((noinline)) int crash_by_recursion(volatile int* depth) {
  volatile char frame[4096];
  frame[0] = char(*depth);
  *depth = *depth + 1;
  if (*depth < 0) return 0;
  return crash_by_recursion(depth) + frame[0];
}
__attribute__((noinline)) void smash_stack(std::size_t bytes) {
  volatile char* frame = static_cast<volatile char*>(__builtin_frame_address(0));
  for (std::size_t i = 0; i < bytes; ++i) frame[i] = 0x41;
  crash_by_null(nullptr);
}
__attribute__((noinline)) void throw_from_below(int depth) {
  if (depth == 0) throw std::range_error("thrown far below");
  throw_from_below(depth - 1);
  asm volatile("");
}

#if defined(__x86_64__)
// The instruction behind it is next: the fault does not repeat itself.
__attribute__((noinline)) void stop_at_breakpoint() { asm volatile("int3"); }
#endif

#undef NDEBUG
#include <cassert>
__attribute__((noinline)) void fail_assertion(int sum) { assert(sum == 0); }

namespace {

template <class F>
ProcessRaised raised_by(StartMethod method, F function) {
  try {
    spawn({.start_method = method}, function);
  } catch (const ProcessRaised& failure) {
    return failure;
  }
  FAIL("nothing was thrown");
  std::abort();
}

bool shows(const ProcessFailed& failure, const std::string& function) {
  const auto trace = failure.stack_trace();
  for (const auto& frame : trace) UNSCOPED_INFO(frame.text());
  return std::any_of(trace.begin(), trace.end(),
                     [&](const StackFrame& frame) { return frame.function.find(function) != std::string::npos; });
}

TEST_CASE("crash: SIGSEGV is told with address and stack, innermost function first") {
  if (kSanitized) return;
  FOR_EACH_METHOD(method);
  const auto failure = exit_of(method, [](int) { crash_by_null(reinterpret_cast<int*>(0x40)); });
  CHECK(failure.signal() == SIGSEGV);
  CHECK_THAT(failure.what(), EndsWith("was killed by SIGSEGV at address 0x40"));
  CHECK(shows(failure, "shoal::crash_by_null"));
  const auto trace = failure.stack_trace();
  CHECK_THAT(trace.at(0).function, StartsWith("shoal::crash_by_null"));
  CHECK_THAT(trace.at(0).image, EndsWith("runtime_test"));
  for (const auto& frame : trace) CHECK(frame.function.find("run_started_child") == std::string::npos);
  // As far as the user's function, and no further: this test's lambda, or what it was inlined into.
  CHECK_FALSE(trace.back().function.starts_with("std::"));
  for (const auto& frame : trace) {
    CHECK(frame.function.find("TypedTask<") == std::string::npos);
    CHECK_THAT(frame.file, !ContainsSubstring("runtime/child/") && !ContainsSubstring("runtime/call/"));
  }
  CHECK_THAT(trace.at(0).file, EndsWith("tests/runtime/crash/failure_kinds_test.cpp"));
  CHECK(trace.at(0).line > 0);
  CHECK_THAT(failure.report(),
             ContainsSubstring("failure_kinds_test.cpp:" + std::to_string(trace.at(0).line) + " in "));
}

/// From now on this system call raises SIGSYS, and returns when a handler does.
void trap_system_call(long number) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, std::uint32_t(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{sizeof program / sizeof *program, program};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) ::_exit(125);
}

TEST_CASE("crash: a fault that does not repeat itself ends the process, whose function does not go on") {
  if (kSanitized) return;
  FOR_EACH_METHOD(method);
#if defined(__x86_64__)
  const auto stopped = exit_of(method, [](int) { stop_at_breakpoint(); });
  CHECK(stopped.signal_name() == "SIGTRAP");
  CHECK(shows(stopped, "shoal::stop_at_breakpoint"));
#endif
  const auto refused = exit_of(method, [](int) {
    trap_system_call(SYS_personality);
    ::syscall(SYS_personality, 0xffffffff);
  });
  CHECK(refused.signal_name() == "SIGSYS");
  CHECK(shows(refused, "syscall"));
  // As the kernel tells of memory that went bad and that nobody has read yet.
  const auto told_early = exit_of(method, [](int) {
    siginfo_t info{};
    info.si_signo = SIGBUS;
    info.si_code = BUS_MCEERR_AO;
    ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), SIGBUS, &info);
  });
  CHECK(told_early.signal_name() == "SIGBUS");
}

TEST_CASE("crash: a signal that is sent while it is ignored is ignored, and crashes are told as before") {
  if (kSanitized) return;
  const auto failure = [&] {
    struct sigaction ignore{}, before;
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGTRAP, &ignore, &before);
    std::optional<ProcessExited> found;
    try {
      spawn({.start_method = StartMethod::fork}, [](int) {
        ::raise(SIGTRAP);
        ::fprintf(stderr, "went on\n");
        crash_by_null(nullptr);
      });
    } catch (const ProcessExited& exited) {
      found = exited;
    }
    ::sigaction(SIGTRAP, &before, nullptr);
    return found;
  }();
  REQUIRE(failure);
  CHECK(failure->signal() == SIGSEGV);
  CHECK(failure->stderr_tail() == "went on\n");
}

TEST_CASE("crash: a call to nowhere shows the caller") {
  if (kSanitized) return;
  FOR_EACH_METHOD(method);
  const auto failure = exit_of(method, [](int) { crash_by_call(nullptr); });
  CHECK(failure.signal() == SIGSEGV);
  CHECK(shows(failure, "shoal::crash_by_call"));
}

TEST_CASE("crash: a stack that overflows is told, with its end") {
  if (kSanitized) return;
  FOR_EACH_METHOD(method);
  const auto failure = exit_of(method, [](int) {
    rlimit small{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_STACK, &small);
    volatile int depth = 0;
    return crash_by_recursion(&depth);
  });
  CHECK(failure.signal() == SIGSEGV);
  CHECK(shows(failure, "shoal::crash_by_recursion"));
  CHECK(failure.stack_trace().size() == CrashRecord::kMostFrames);
}

TEST_CASE("crash: a smashed stack is told as far as it goes") {
  if (kSanitized) return;
  FOR_EACH_METHOD(method);
  const auto failure = exit_of(method, [](int) { smash_stack(512); });
  CHECK(failure.signal() == SIGSEGV);
  CHECK(shows(failure, "shoal::crash_by_null"));
}

TEST_CASE("crash: an exception shows where it was thrown, from whatever depth") {
  FOR_EACH_METHOD(method);
  const auto failure = raised_by(method, [](int) { throw_from_below(5); });
  const auto trace = failure.stack_trace();
  CHECK(shows(failure, "shoal::throw_from_below"));
  REQUIRE(trace.size() > 5);
  for (int i = 0; i < 6; ++i) CHECK_THAT(trace[i].function, StartsWith("shoal::throw_from_below"));
}

TEST_CASE("crash: exceptions that the function catches itself leave no trace") {
  FOR_EACH_METHOD(method);
  const auto failure = exit_of(method, [](int) {
    try {
      throw_from_below(2);
    } catch (const std::exception&) {
    }
    ::_exit(5);
  });
  CHECK(failure.exit_code() == 5);
  CHECK(failure.stack_trace().empty());
  CHECK(failure.exception_type().empty());
}

TEST_CASE("crash: nested exceptions come in their order") {
  FOR_EACH_METHOD(method);
  const auto failure = raised_by(method, [](int) {
    try {
      try {
        throw 7;
      } catch (...) {
        std::throw_with_nested(std::out_of_range("no such key"));
      }
    } catch (...) {
      std::throw_with_nested(std::runtime_error("cannot read settings"));
    }
  });
  CHECK(failure.exception_message() == "cannot read settings");
  REQUIRE(failure.nested().size() == 2);
  CHECK(failure.nested()[0].type.find("std::out_of_range") != std::string::npos);
  CHECK(failure.nested()[0].message == "no such key");
  CHECK(failure.nested()[1].type == "int");
  CHECK_THAT(failure.report(), ContainsSubstring("because of") && ContainsSubstring("no such key"));
}

TEST_CASE("crash: std::terminate for what is no std::exception names its type as people write it") {
  FOR_EACH_METHOD(method);
  const auto failure = exit_of(method, [](int) { std::thread([] { throw std::vector<int>(); }).join(); });
  CHECK(failure.exception_type() == "std::vector<int, std::allocator<int> >");
}

TEST_CASE("crash: std::terminate is told with the exception that it was called for") {
  FOR_EACH_METHOD(method);
  SECTION("thrown out of a thread") {
    const auto failure = exit_of(method, [](int) { std::thread([] { throw_from_below(1); }).join(); });
    CHECK(failure.signal() == SIGABRT);
    CHECK(failure.exception_type() == "std::range_error");
    CHECK(failure.exception_message() == "thrown far below");
    CHECK_THAT(failure.what(), EndsWith("std::terminate was called for std::range_error: thrown far below"));
    CHECK(shows(failure, "shoal::throw_from_below"));
  }
  SECTION("by itself") {
    const auto failure = exit_of(method, [](int) { std::terminate(); });
    CHECK(failure.signal() == SIGABRT);
    CHECK(failure.exception_type().empty());
    CHECK_THAT(failure.what(), EndsWith("std::terminate was called"));
  }
}

TEST_CASE("crash: abort is told with the last words of the C library") {
  FOR_EACH_METHOD(method);
  const auto aborted = exit_of(method, [](int) { std::abort(); });
  CHECK(aborted.signal_name() == "SIGABRT");
  CHECK(shows(aborted, "abort"));
  const auto asserted = exit_of(method, [](int) { fail_assertion(1); });
  CHECK_THAT(asserted.what(), ContainsSubstring("failure_kinds_test.cpp") && ContainsSubstring("sum == 0"));
}

TEST_CASE("crash: handlers of the user's are called after the record is written, and mended faults are none") {
  if (kSanitized) return;
  static volatile sig_atomic_t calls;
  const auto failure = [&] {
    struct sigaction action{}, before;
    // In a fork they are there before shoal's.
    action.sa_handler = [](int) {
      calls = calls + 1;
      if (calls == 2) ::_exit(77);
    };
    ::sigaction(SIGFPE, &action, &before);
    try {
      spawn({.start_method = StartMethod::fork}, [](int) {
        ::raise(SIGFPE);
        ::fprintf(stderr, "went on\n");
        ::raise(SIGFPE);
      });
    } catch (const ProcessExited& exited) {
      ::sigaction(SIGFPE, &before, nullptr);
      return exited;
    }
    FAIL("nothing was thrown");
    std::abort();
  }();
  CHECK(failure.exit_code() == 77);
  CHECK(failure.signal() == 0);
  CHECK(failure.stack_trace().empty());
  CHECK(failure.stderr_tail() == "went on\n");
}

TEST_CASE("crash: one that holds locks, the library's and the C library's, is told as any other") {
  if (kSanitized) return;
  FOR_EACH_METHOD(method);
  Lock lock;
  const auto held = exit_of(
      method,
      [](int, Lock mine) {
        mine.lock();
        ::flockfile(stderr);
        // Inside, the loader's lock is held, which the unwinder of old needed.
        ::dl_iterate_phdr(
            [](dl_phdr_info*, std::size_t, void*) {
              crash_by_null(nullptr);
              return 0;
            },
            nullptr);
      },
      lock);
  CHECK(held.signal() == SIGSEGV);
  CHECK(shows(held, "shoal::crash_by_null"));
}

TEST_CASE("crash: one in a thread, beside others, is told") {
  if (kSanitized) return;
  FOR_EACH_METHOD(method);
  const auto failure = exit_of(method, [](int) {
    std::thread idle([] { ::pause(); });
    std::thread([] { crash_by_null(nullptr); }).join();
    idle.join();
  });
  CHECK(failure.signal() == SIGSEGV);
  CHECK(shows(failure, "shoal::crash_by_null"));
}

TEST_CASE("crash: a process that user code forks in a child writes nothing into the child's record") {
  if (kSanitized) return;
  FOR_EACH_METHOD(method);
  const auto failure = exit_of(method, [](int) {
    const pid_t own = ::fork();
    if (own == 0) crash_by_null(nullptr);
    int status;
    while (::waitpid(own, &status, 0) < 0 && errno == EINTR) continue;
    ::_exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 6 : 7);
  });
  CHECK(failure.exit_code() == 6);
  CHECK(failure.stack_trace().empty());
}

TEST_CASE("crash: later failures are listed under the root cause, those ended because of it are not") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(8);
  auto work = [](int rank, Queue<int> here) {
    sigset_t told;
    sigemptyset(&told);
    sigaddset(&told, SIGTERM);
    if (rank == 0) {
      here.get();
      throw std::logic_error("the root cause");
    }
    if (rank == 2)
      for (;;) ::pause();
    ::sigprocmask(SIG_BLOCK, &told, nullptr);
    here.put(rank);
    int number;
    ::sigwait(&told, &number);
    throw std::runtime_error("cannot go on alone");
  };
  try {
    spawn({.nprocs = 3, .start_method = method, .grace_period = std::chrono::seconds(30)}, work, ready);
    FAIL("nothing was thrown");
  } catch (const ProcessRaised& failure) {
    CHECK(failure.exception_message() == "the root cause");
    REQUIRE(failure.later_failures().size() == 1);
    CHECK(failure.later_failures()[0]->rank() == 1);
    CHECK_THAT(failure.report(), ContainsSubstring("later:") && ContainsSubstring("cannot go on alone"));
  }
}

TEST_CASE("crash: who threw first is the root cause, though what its destructors did let another one fail before") {
  FOR_EACH_METHOD(method);
  Queue<int> left(1);
  auto work = [](int rank, Queue<int> told) {
    struct Leaves {
      Queue<int>& told;
      ~Leaves() {
        told.put(1);
        // Until the other one's failure has been seen, and this process is told to end because of it.
        sigset_t ends;
        sigemptyset(&ends);
        sigaddset(&ends, SIGTERM);
        int number;
        ::sigwait(&ends, &number);
      }
    };
    if (rank == 0) {
      told.get();
      throw std::runtime_error("rank 1 has left");
    }
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &ends, nullptr);
    const Leaves leaves{told};
    throw std::logic_error("the root cause");
  };
  try {
    spawn({.nprocs = 2, .start_method = method, .grace_period = std::chrono::seconds(30)}, work, left);
    FAIL("nothing was thrown");
  } catch (const ProcessRaised& failure) {
    CHECK(failure.exception_message() == "the root cause");
    REQUIRE(failure.later_failures().size() == 1);
    CHECK(failure.later_failures()[0]->rank() == 0);
  }
}

TEST_CASE("crash: who threw first may report, though another one has ended before and the rest are told to end") {
  FOR_EACH_METHOD(method);
  const std::string late_at = GENERATE("", "child.caught", "child.noted", "child.reported");
  CAPTURE(late_at);
  Queue<pid_t> numbers(1), leaves(1);
  auto work = [](int rank, Queue<pid_t> number, Queue<pid_t> left, std::string late_at) {
    struct Leaves {
      const pid_t other;
      Queue<pid_t>& left;
      ~Leaves() {
        left.put(1);
        while (::kill(other, 0) == 0) ::usleep(100);  // until its parent has seen its end
      }
    };
    if (rank == 0) {
      number.put(::getpid());
      left.get();
      throw std::runtime_error("rank 1 has left");
    }
    delay_at(late_at.c_str(), {.mean = 60000, .one_in = 1});  // 20 ms: the other one's end has been seen by then
    const Leaves leaving{number.get(), left};
    throw std::logic_error("the root cause");
  };
  try {
    spawn({.nprocs = 2, .start_method = method, .grace_period = std::chrono::seconds(30)}, work, numbers, leaves,
          late_at);
    FAIL("nothing was thrown");
  } catch (const ProcessRaised& failure) {
    CHECK(failure.exception_message() == "the root cause");
    REQUIRE(failure.later_failures().size() == 1);
    CHECK(failure.later_failures()[0]->rank() == 0);
  }
}

TEST_CASE("crash: later failures that are there already when the first is seen are listed") {
  FOR_EACH_METHOD(method);
  auto context = start_processes({.nprocs = 3, .start_method = method}, [](int rank) {
    if (rank == 2) ::raise(SIGKILL);
    throw std::runtime_error("rank " + std::to_string(rank));
  });
  test::wait_until_dead(context.pids());
  try {
    context.join();
    FAIL("nothing was thrown");
  } catch (const ProcessFailed& failure) {
    CHECK(failure.rank() == 2);
    REQUIRE(failure.later_failures().size() == 2);
    CHECK_THAT(failure.report(), ContainsSubstring("raised std::runtime_error: rank 0") &&
                                     ContainsSubstring("raised std::runtime_error: rank 1"));
  }
}

// In started programs, before main and before anything of shoal's.
const bool dies_before_main = [] {
  if (const char* way = std::getenv("SHOAL_TEST_DIE_BEFORE_MAIN")) {
    if (std::strcmp(way, "exit") == 0) ::_exit(9);
    ::raise(SIGKILL);
  }
  return false;
}();

TEST_CASE("crash: death before main is told as such") {
  CHECK_FALSE(dies_before_main);
  ::setenv("SHOAL_TEST_DIE_BEFORE_MAIN", "exit", 1);
  const auto exited = exit_of(StartMethod::spawn, [](int) {});
  ::setenv("SHOAL_TEST_DIE_BEFORE_MAIN", "signal", 1);
  const auto killed = exit_of(StartMethod::spawn, [](int) {});
  ::unsetenv("SHOAL_TEST_DIE_BEFORE_MAIN");
  CHECK(exited.exit_code() == 9);
  CHECK_THAT(exited.what(), EndsWith("exited with code 9 before it reached shoal::init"));
  CHECK_THAT(killed.what(), EndsWith("was killed by SIGKILL before it reached shoal::init"));
}

TEST_CASE("crash: death at every point of the start is told, and leaves nothing") {
  const std::string label =
      GENERATE("child.slot_taken", "child.record_adopted", "child.watched", "child.channel_adopted", "child.reported");
  CAPTURE(label);
  ::setenv("SHOAL_KILL_AT", label.c_str(), 1);
  const auto killed = exit_of(StartMethod::spawn, [](int, std::string) {}, std::string(5000, 'x'));
  ::unsetenv("SHOAL_KILL_AT");
  CHECK(killed.signal() == SIGKILL);
  CHECK_THAT(killed.what(), ContainsSubstring(label == "child.slot_taken" || label == "child.record_adopted"
                                                  ? "before it reached shoal::init"
                                              : label == "child.reported" ? "after its function had ended"
                                                                          : "while it was starting"));
}

TEST_CASE("crash: an exception whose report does not get through is told from the record") {
  FOR_EACH_METHOD(method);
  const auto failure = raised_by(method, [](int) {
    kill_at("child.noted");
    throw std::length_error("too long: " + std::string(3000, 'm'));
  });
  CHECK(failure.exception_type() == "std::length_error");
  CHECK_THAT(failure.exception_message(), StartsWith("too long: mmm"));
  CHECK(failure.exception_message().size() == sizeof(CrashRecord::message) - 1);
  CHECK(failure.signal() == SIGKILL);
}

TEST_CASE("crash: the exception says how the process was started") {
  FOR_EACH_METHOD(method);
  CHECK(exit_of(method, [](int) { ::_exit(1); }).start_method() == method);
}

}  // namespace
}  // namespace shoal
