#include "tests/support/forked.h"

#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <stdexcept>

namespace shoal::test {

Forked::Forked(const std::function<void()>& body) {
  SessionCore& session = SessionCore::current();
  session.self();
  int ready[2];
  if (::pipe(ready) != 0) throw std::runtime_error("pipe");
  ::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ != 0) {
    ::close(ready[1]);
    char byte;
    if (::read(ready[0], &byte, 1) != 1) ::fputs("a forked child died before its test began\n", stderr);
    ::close(ready[0]);
    return;
  }
  int code = 0;
  try {
    ::alarm(240);  // the watchdog is the parent's
    session.self();
    session.adopt_inherited_holds();
    ::close(ready[0]);
    (void)!::write(ready[1], "r", 1);
    ::close(ready[1]);
    body();
    session.leave();
  } catch (const std::exception& error) {
    ::fprintf(stderr, "forked child: %s\n", error.what());
    code = 1;
  }
  ::_exit(code);
}

Forked::~Forked() {
  kill();
  Session::current().reclaim_all();
}

int Forked::join() {
  if (joined_) return result_;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0)
    if (errno != EINTR) throw std::runtime_error("a forked child was reaped by somebody else");
  joined_ = true;
  return result_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void Forked::signal(int number) const {
  if (!joined_) ::kill(pid_, number);
}

void Forked::wait_until_stopped() const {
  int status = 0;
  if (::waitpid(pid_, &status, WUNTRACED) != pid_ || !WIFSTOPPED(status))
    throw std::logic_error("a process of a test that should have stopped has ended");
}

void stop_here() { ::kill(::getpid(), SIGSTOP); }

void Forked::kill() {
  signal(SIGKILL);
  join();
}

}  // namespace shoal::test
