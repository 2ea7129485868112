#include "tests/support/watchdog.h"

#include <execinfo.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "tests/support/guard.h"

namespace shoal::test {
namespace {

// Far from the signals that tests themselves use.
const int kSignal = SIGRTMAX - 3;

timer_t timer;
bool timer_made = false;
char current_test[256];
int periods_left = 0;
double period_seconds = 0, cpu_before = 0;

/// Of this process and of those that it has waited for, in seconds.
double cpu_used() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      seconds += double(time.tv_sec) + double(time.tv_usec) / 1e6;
  }
  return seconds;
}

/// On a busy machine a test case may be slow: it computes, and starts processes that end. One that hangs waits.
bool goes_on() {
  const double before = cpu_before;
  cpu_before = cpu_used();
  return --periods_left > 0 && cpu_before - before > period_seconds / 10;
}

void write_text(const char* text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text));
}

// Runs at any instruction of any thread, perhaps inside malloc: system calls only. The report itself is therefore made
// by a shell script in a process of its own. _Fork: no atfork handler may run here.
void on_time_out(int) {
  if (goes_on()) return;
  write_text("\nHANG '");
  write_text(current_test);
  write_text("': the watchdog ends it\n");
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);

  char pid[16];
  char* digit = pid + sizeof(pid) - 1;
  *digit = '\0';
  for (pid_t rest = getpid(); rest > 0; rest /= 10) *--digit = static_cast<char>('0' + rest % 10);

  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  const pid_t reporter = _Fork();
  if (reporter == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execl("/bin/sh", "sh", SHOAL_REPORT_HANG, digit, static_cast<char*>(nullptr));
    _exit(127);
  }
  if (reporter > 0) {
    while (waitpid(reporter, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  signal(SIGABRT, SIG_DFL);
  abort();
}

int timeout_seconds() {
  const char* text = std::getenv("SHOAL_TEST_TIMEOUT");
  const int seconds = text == nullptr ? 60 : std::atoi(text);
  if (seconds <= 0) throw std::invalid_argument(fmt::format("SHOAL_TEST_TIMEOUT={}: give seconds, at least 1", text));
  return seconds * test_scale();
}

void make_timer() {
  // The first backtrace() loads a library and allocates: not something to do in the handler.
  void* frame[1];
  backtrace(frame, 1);

  struct sigaction action = {};
  action.sa_handler = on_time_out;
  action.sa_flags = SA_RESTART;
  sigaction(kSignal, &action, nullptr);
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = kSignal;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) throw std::runtime_error("timer_create failed");
  timer_made = true;
}

}  // namespace

void start_watchdog(const std::string& test_name) {
  std::snprintf(current_test, sizeof(current_test), "%s", test_name.c_str());
  if (!timer_made) make_timer();
  const timespec period = {.tv_sec = timeout_seconds(), .tv_nsec = 0};
  period_seconds = double(period.tv_sec);
  periods_left = 4;
  cpu_before = cpu_used();
  const itimerspec again_and_again = {.it_interval = period, .it_value = period};
  timer_settime(timer, 0, &again_and_again, nullptr);
}

void stop_watchdog() {
  const itimerspec never = {};
  timer_settime(timer, 0, &never, nullptr);
}

}  // namespace shoal::test
