#include <shoal/internal/runtime/command/run/leftovers.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/fd.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

namespace shoal::command {
namespace {

/// All variables of a process, each ended by a zero byte. Empty if it is gone or another user's.
std::string read_environment_of(const char* folder) {
  char path[64];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/environ", folder).out = '\0';
  Fd file = lift(Fd(::open(path, O_RDONLY | O_CLOEXEC)));
  std::string text;
  char part[16384];
  for (ssize_t got; file && (got = ::read(file.get(), part, sizeof part)) > 0;) text.append(part, std::size_t(got));
  return text;
}

[[noreturn]] void guard(const RunMark& mark, int lifeline) {
  ::prctl(PR_SET_NAME, "run guard");
  ::setsid();
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  const int nothing = ::open("/dev/null", O_RDWR);  // unlifted: it is what 0 to 2 are to be
  for (int i = 0; i < 3; ++i) ::dup2(nothing, i);   // a pipe that the launcher writes to has to end with it
  ::dup2(lifeline, 3);
  ::syscall(SYS_close_range, 4u, ~0u, 0u);
  char byte;
  while (::read(3, &byte, 1) < 0 && errno == EINTR) continue;
  // The launcher is gone. Twice: it may have been forking a rank.
  mark.kill_all();
  const timespec moment{0, 20'000'000};
  ::nanosleep(&moment, nullptr);
  mark.kill_all();
  ::_exit(0);
}

}  // namespace

RunMark::RunMark() {
  std::random_device random;
  for (int i = 0; i < 4; ++i) own_ += fmt::format("{:08x}", random());
  value_ = own_;
  if (const char* around = std::getenv(kVariable)) value_ += std::string(":") + around;
}

bool RunMark::is_in(const char* process_folder) const noexcept {
  const std::string environment = '\0' + read_environment_of(process_folder);
  const std::string name = fmt::format("{}{}=", '\0', kVariable);  // the zero byte: of exactly this name
  const std::size_t at = environment.find(name);
  if (at == std::string::npos) return false;
  const std::string marks = ":" + std::string(environment.c_str() + at + name.size()) + ":";
  return marks.find(":" + own_ + ":") != std::string::npos;
}

bool RunMark::kill_all() const noexcept {
  constexpr timespec kBetween{0, 20'000'000};
  // What one of them was forking may appear after a look.
  int looks = 0;
  while (looks < 250 && look_and_kill() != 0) {
    ++looks;
    ::nanosleep(&kBetween, nullptr);
  }
  return looks != 0;
}

int RunMark::look_and_kill() const noexcept {
  DIR* processes = ::opendir("/proc");
  if (!processes) return 0;
  int killed = 0;
  while (const dirent* entry = ::readdir(processes)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || !is_in(entry->d_name)) continue;
    const pid_t pid = pid_t(::atoi(entry->d_name));
    if (pid == ::getpid()) continue;
    try {
      const Fd process = open_pidfd(pid);
      // Once more, now that the descriptor says which process is meant: the first one may have ended.
      if (is_in(entry->d_name) && send_signal(process, SIGKILL)) ++killed;
    } catch (const SystemError&) {
      // Gone already.
    }
  }
  ::closedir(processes);
  return killed;
}

RunGuard::RunGuard(const RunMark& mark) {
  PipeEnds pipe = make_pipe();
  pid_ = ::fork();
  if (pid_ == 0) {
    pipe.writing.reset();
    guard(mark, pipe.reading.get());
  }
  if (pid_ < 0) throw SystemError("forking the guard of this run", errno);
  lifeline_ = pipe.writing.release();
}

RunGuard::~RunGuard() {
  ::kill(pid_, SIGKILL);  // this process's child, which nobody has waited for
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  ::close(lifeline_);
}

}  // namespace shoal::command
