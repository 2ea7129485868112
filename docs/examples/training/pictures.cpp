#include "training/pictures.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

void draw_pictures(const std::filesystem::path& log, const std::filesystem::path& folder) {
  if (folder.empty()) return;
  std::fflush(stdout);  // what was said so far comes first
  std::string program = "python3", script = SHOAL_PLOT_SCRIPT, from = log, to = folder;
  char* arguments[] = {program.data(), script.data(), from.data(), to.data(), nullptr};
  pid_t pid = 0;
  int status = 0;
  const int failure = ::posix_spawnp(&pid, program.c_str(), nullptr, nullptr, arguments, environ);
  if (failure != 0)
    fmt::print(stderr, "no pictures: {}: {}; later: python3 {} {} {}\n", program, std::strerror(failure), script, from,
               to);
  else if (::waitpid(pid, &status, 0) != pid || status != 0)
    fmt::print(stderr, "no pictures: {} {} failed\n", program, script);
}
