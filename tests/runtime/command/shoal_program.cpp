#include "tests/runtime/command/shoal_program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace shoal::test {

const std::string kShoal = SHOAL_PROGRAM, kRankProgram = SHOAL_RANK_PROGRAM;

RunningProgram::RunningProgram(const std::vector<std::string>& arguments, const std::function<void()>& before) {
  int output[2], error[2];
  if (::pipe2(output, O_CLOEXEC) != 0 || ::pipe2(error, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  output_ = Fd(output[0]);
  error_ = Fd(error[0]);
  const Fd output_end(output[1]), error_end(error[1]);
  std::vector<char*> pointers;
  for (const auto& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("no process");
  if (pid_ == 0) {
    ::setpgid(0, 0);
    ::dup2(output_end.get(), 1);
    ::dup2(error_end.get(), 2);
    for (const char* variable : {"OMP_NUM_THREADS", "RANK", "WORLD_SIZE"}) ::unsetenv(variable);
    if (before) before();
    ::execv(pointers[0], pointers.data());
    ::_exit(126);
  }
  ::setpgid(pid_, pid_);  // here too: the destructor may come before the child has run, and ends the group
}

RunningProgram::~RunningProgram() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void RunningProgram::signal(int number) const { ::kill(pid_, number); }

ProgramResult RunningProgram::finish() {
  ProgramResult result;
  struct Stream {
    Fd* from;
    std::string* to;
  } streams[] = {{&output_, &result.output}, {&error_, &result.error}};
  while (output_ || error_) {
    pollfd polled[2] = {{output_.get(), POLLIN, 0}, {error_.get(), POLLIN, 0}};
    if (::poll(polled, 2, -1) < 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (!polled[i].revents) continue;
      char bytes[4096];
      const ssize_t got = ::read(streams[i].from->get(), bytes, sizeof bytes);
      if (got > 0)
        streams[i].to->append(bytes, std::size_t(got));
      else
        streams[i].from->reset();
    }
  }
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  pid_ = 0;
  result.code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

ProgramResult run_program(const std::vector<std::string>& arguments, const std::function<void()>& before) {
  return RunningProgram(arguments, before).finish();
}

std::vector<std::string> ranks_command(std::vector<std::string> options, const std::vector<std::string>& steps) {
  std::vector<std::string> command{kShoal, "run"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--", kRankProgram});
  command.insert(command.end(), steps.begin(), steps.end());
  return command;
}

ProgramResult run_ranks(std::vector<std::string> options, const std::vector<std::string>& steps) {
  return run_program(ranks_command(std::move(options), steps));
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::set<std::string> sorted_lines(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream input(text);
  for (std::string line; std::getline(input, line);) lines.insert(line);
  return lines;
}

std::vector<std::string> wait_for_lines(const std::string& path, std::size_t count) {
  for (;;) {
    auto lines = lines_of(path);
    if (lines.size() >= count) return lines;
    ::usleep(2000);
  }
}

}  // namespace shoal::test
