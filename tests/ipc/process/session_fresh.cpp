#include "tests/ipc/process/session_fresh.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <vector>

namespace shoal::test {
namespace {

constexpr const char* kMark = "SHOAL_TEST_FRESH";
/// What the test program itself prints goes elsewhere.
constexpr int kSay = 100, kHear = 101;

std::string read_line_of(int descriptor) {
  std::string line;
  char letter;
  while (::read(descriptor, &letter, 1) == 1 && letter != '\n') line += letter;
  return line;
}

}  // namespace

FreshProcess::FreshProcess(const std::string& body, const Environment& environment) {
  int in[2], out[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
    throw std::runtime_error("pipe");
  std::vector<std::string> settings{std::string(kMark) + "=1"};
  for (const auto& [name, value] : environment) settings.push_back(name + "=" + value);
  ::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    // Before dup2 onto them: 100 and 101 are not open in this program.
    ::dup2(out[1], kSay);
    ::dup2(in[0], kHear);
    ::alarm(60);
    for (const std::string& setting : settings) ::putenv(const_cast<char*>(setting.c_str()));
    ::execl("/proc/self/exe", "fresh", body.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  input_ = in[1];
  output_ = out[0];
}

FreshProcess::~FreshProcess() {
  kill();
  ::close(input_);
  ::close(output_);
}

void FreshProcess::write_line(const std::string& text) const {
  // It may be gone: that is no reason for a SIGPIPE here.
  (void)!::send(input_, (text + "\n").data(), text.size() + 1, MSG_NOSIGNAL);
}

std::string FreshProcess::read_line() const { return read_line_of(output_); }

int FreshProcess::join() {
  if (joined_) return result_;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0) {
  }
  joined_ = true;
  return result_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void FreshProcess::kill() {
  if (!joined_) ::kill(pid_, SIGKILL);
  join();
}

bool fresh::is_one() { return ::getenv(kMark) != nullptr; }
void fresh::say(const std::string& text) { (void)!::write(kSay, (text + "\n").data(), text.size() + 1); }
std::string fresh::hear() { return read_line_of(kHear); }

void fresh::end(int code) {
  ::unsetenv(kMark);
  ::exit(code);
}

}  // namespace shoal::test
