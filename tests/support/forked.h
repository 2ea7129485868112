// A process of a test: a fork that runs a function.
#pragma once

#include <sys/types.h>

#include <functional>

namespace shoal::test {

/// Runs `body` in a forked child, which ends with 0, or with 1 where body throws (the text goes to
/// stderr). The constructor returns once the child is a process of its own in the session and has made
/// its copies of the parent's handles its own. The destructor kills and reaps it and reclaims what it
/// had. One thread; the test program has no others when it forks.
class Forked {
 public:
  explicit Forked(const std::function<void()>& body);
  Forked(const Forked&) = delete;
  ~Forked();

  pid_t pid() const { return pid_; }
  /// Waits for its end. Exit code, or minus the signal's number.
  int join();
  void signal(int number) const;
  /// Until it has stopped (stop_here(), stop_at() of kill_point.h, SIGSTOP).
  void wait_until_stopped() const;
  /// SIGKILL, wait, and nothing reclaimed: what survivors make of it is the test.
  void kill();

 private:
  pid_t pid_;
  bool joined_ = false;
  int result_ = 0;
};

/// SIGSTOP to the caller: it goes on when it gets SIGCONT.
void stop_here();

}  // namespace shoal::test
