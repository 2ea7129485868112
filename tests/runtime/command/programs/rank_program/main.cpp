// A program for `shoal run` to start: what it does is said by its arguments, one after the other.
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/environment.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/runtime/stop.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

shoal::Environment self;

void append_to(const char* path, const std::string& line) { std::ofstream(path, std::ios::app) << line + "\n"; }

void wait_for_ever() {
  for (;;) ::pause();
}

/// Ranks of one host meet: by name in the session that they are all in.
void meet() {
  shoal::Session& session = shoal::Session::current();
  if (self.local_rank == 0) session.publish("meeting", shoal::Barrier(self.local_world_size));
  auto barrier = session.lookup<shoal::Barrier>("meeting", std::chrono::seconds(30));
  barrier.wait();
  std::printf("met in session of %d\n", self.local_world_size);
  barrier.wait();  // whoever published it stays until all have met
}

int do_nothing(int rank) { return rank; }
int fail(int) {
  std::fprintf(stderr, "last words of a child\n");
  throw std::domain_error("thrown by a child");
}

void crash() {
#ifdef __SANITIZE_ADDRESS__
  ::signal(SIGSEGV, SIG_DFL);  // not the sanitizer's, which exits
#endif
  ::raise(SIGSEGV);
}

void run(const std::string& what, const char* argument) {
  const bool chosen = self.rank == std::atoi(argument);
  if (what == "env")
    std::printf("rank %d/%d local %d/%d node %d/%d restart %d run %s at %s\n", self.rank, self.world_size,
                self.local_rank, self.local_world_size, self.node_rank, self.node_count, self.restart_count,
                self.run_id.c_str(), shoal::launcher_name(self.launcher));
  else if (what == "share")
    std::printf("each of %s computes with %d\n", argument, shoal::thread_share(std::atoi(argument), 0));
  else if (what == "pid-to")
    append_to(argument, std::to_string(::getpid()));
  else if (what == "round-to")
    append_to(argument, std::to_string(self.rank) + "/" + std::to_string(self.world_size) + " of start " +
                            std::to_string(self.restart_count));
  else if (what == "meet")
    meet();
  else if (what == "spawn")
    shoal::spawn({.nprocs = 2}, do_nothing);
  else if (what == "spawn-uncaught")
    shoal::spawn({.nprocs = 1}, fail);
  else if (what == "throw" && chosen)
    throw std::out_of_range("thrown by a rank");
  else if (what == "segv" && chosen)
    crash();
  else if (what == "kill" && chosen)
    ::raise(SIGKILL);
  else if (what == "exit" && chosen)
    std::exit(3);
  else if (what == "exit-first" && self.restart_count < std::atoi(argument))
    std::exit(self.rank == 1 ? 4 : (wait_for_ever(), 0));
  else if (what == "wait")
    wait_for_ever();
  else if (what == "ignore-term")
    ::signal(SIGTERM, SIG_IGN);
  else if (what == "until-stop") {
    while (!shoal::stop_requested()) ::usleep(1000);
    append_to(argument, "checkpoint of " + std::to_string(self.rank));
  } else if (what == "partial") {
    std::printf("no end of line");
    std::fflush(stdout);
  } else if (what == "stderr")
    std::fprintf(stderr, "%s\n", argument);
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  self = shoal::environment();
  // Whoever sees this rank's pid may tell it to stop: from then on that is to be noted.
  for (int i = 1; i + 1 < argc; i += 2)
    if (std::string_view(argv[i]) == "until-stop") shoal::stop_requested();
  for (int i = 1; i + 1 < argc; i += 2) run(argv[i], argv[i + 1]);
  return 0;
}
