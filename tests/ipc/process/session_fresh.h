// A process of a test that is part of no session when it begins.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace shoal::test {

/// Runs a hidden test case of this very program in a process of its own, which finds no session. What the
/// test writes to it and reads from it are lines. The destructor kills and reaps it. One
/// thread.
class FreshProcess {
 public:
  using Environment = std::map<std::string, std::string>;

  /// `body` is the hidden test case's name. Returns at once.
  explicit FreshProcess(const std::string& body, const Environment& environment = {});
  FreshProcess(const FreshProcess&) = delete;
  ~FreshProcess();

  pid_t pid() const { return pid_; }
  void write_line(const std::string& text) const;
  /// The next line that it prints; empty at its end.
  std::string read_line() const;
  /// Waits for its end. Exit code, or minus the signal's number.
  int join();
  void kill();

 private:
  pid_t pid_;
  int input_, output_;
  bool joined_ = false;
  int result_ = 0;
};

/// For the bodies: says something to the test, hears something of it, ends the process. leave() runs what exit() runs,
/// but none of the test program's own reports.
namespace fresh {
bool is_one();
void say(const std::string& text);
std::string hear();
/// Runs the body; what it throws is said, with exit code 1.
template <class Body>
[[noreturn]] void run(Body&& body);
[[noreturn]] void end(int code);
}  // namespace fresh

template <class Body>
[[noreturn]] void fresh::run(Body&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    say(std::string("error: ") + error.what());
    end(1);
  }
  end(0);
}

}  // namespace shoal::test
