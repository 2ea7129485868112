// How a run ends: by signals, in time or not, with its launcher, as process 1 of a container.
#include <fcntl.h>
#include <shoal/ipc/fd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/command/shoal_program.h"
#include "tests/runtime/start/methods.h"
#include "tests/support/catch.h"

namespace shoal::test {
namespace {

std::vector<pid_t> pids_in(const std::string& path, std::size_t count) {
  std::vector<pid_t> pids;
  for (const std::string& line : wait_for_lines(path, count)) pids.push_back(pid_t(std::stoi(line)));
  return pids;
}

TEST_CASE("run: SIGTERM and Ctrl-C reach the ranks once, and give them time for a checkpoint") {
  const int signal = GENERATE(SIGTERM, SIGINT);
  TemporaryFolder folder;
  const std::string ready = folder.file("ready"), saved = folder.file("saved");
  RunningProgram launcher(ranks_command({"--nproc-per-node", "2"}, {"pid-to", ready, "until-stop", saved}));
  wait_for_lines(ready, 2);
  launcher.signal(signal);
  const ProgramResult result = launcher.finish();
  CHECK(result.code == -signal);
  CHECK(lines_of(saved).size() == 2);
}

TEST_CASE("run: ranks that do not end in time are killed, and told of") {
  TemporaryFolder folder;
  const std::string ready = folder.file("ready");
  RunningProgram launcher(ranks_command({"--nproc-per-node", "2", "--shutdown-timeout", "0.05"},
                                        {"ignore-term", "", "pid-to", ready, "wait", ""}));
  const auto pids = pids_in(ready, 2);
  launcher.signal(SIGTERM);
  const ProgramResult result = launcher.finish();
  CHECK(result.code == -SIGTERM);
  CHECK_THAT(result.error, ContainsSubstring("did not end within 0.05 s and is killed"));
}

TEST_CASE("run: a time without end lets ranks end by themselves") {
  TemporaryFolder folder;
  const std::string ready = folder.file("ready"), saved = folder.file("saved");
  RunningProgram launcher({kShoal, "run", "--nproc-per-node", "1", "--shutdown-timeout", "inf", "--", "/bin/bash", "-c",
                           "trap 'sleep 0.3; echo saved >> " + saved + "; exit 0' TERM; echo ready >> " + ready +
                               "; while :; do sleep 0.01; done"});
  wait_for_lines(ready, 1);
  launcher.signal(SIGTERM);
  CHECK(launcher.finish().code == -SIGTERM);
  CHECK(lines_of(saved).size() == 1);
}

TEST_CASE("run: a second Ctrl-C has no patience") {
  TemporaryFolder folder;
  const std::string ready = folder.file("ready");
  RunningProgram launcher(ranks_command({"--nproc-per-node", "1", "--shutdown-timeout", "3600"},
                                        {"pid-to", ready, "until-stop", ready, "wait", ""}));
  wait_for_lines(ready, 1);
  launcher.signal(SIGINT);
  wait_for_lines(ready, 2);
  launcher.signal(SIGINT);
  CHECK(launcher.finish().code == -SIGINT);
}

TEST_CASE("run: when the launcher is killed all ranks are gone, and what they have started") {
  TemporaryFolder folder;
  const std::string pids = folder.file("pids");
  std::vector<pid_t> all;
  std::vector<Fd> watched;
  {
    // A script that knows nothing of shoal, and starts a program in a session of its own.
    RunningProgram launcher({kShoal, "run", "--nproc-per-node", "2", "--", "/bin/bash", "-c",
                             "setsid sleep 1000 & echo $! >> " + pids + "; echo $$ >> " + pids + "; wait"});
    all = pids_in(pids, 4);
    watched = watch(all);
    launcher.signal(SIGKILL);
    CHECK(launcher.finish().code == -SIGKILL);
  }
  CHECK(all_end(watched));
}

TEST_CASE("run: at an orderly end nothing is left either") {
  TemporaryFolder folder;
  const std::string pids = folder.file("pids");
  const ProgramResult result = run_program({kShoal, "run", "--nproc-per-node", "2", "--", "/bin/bash", "-c",
                                            "setsid sleep 1000 >/dev/null 2>&1 & echo $! >> " + pids});
  CHECK(result.code == 0);
  for (const std::string& pid : lines_of(pids)) {
    CAPTURE(pid);
    // Killed, and maybe not gone yet; the watchdog ends the wait for one that lives on.
    auto lives = [&] {
      std::string state;
      std::ifstream("/proc/" + pid + "/stat") >> state >> state >> state;
      return !state.empty() && state != "Z";
    };
    while (lives()) std::this_thread::yield();
    CHECK_FALSE(lives());
  }
}

TEST_CASE("run: whoever has a rank's output and outlives it does not hold up the end") {
  TemporaryFolder folder;
  const std::string pids = folder.file("pids");
  // Each leaves somebody behind who is in no group of its, and has none of its environment.
  const ProgramResult result =
      run_program({kShoal, "run", "--nproc-per-node", "2", "--", "/bin/sh", "-c",
                   "echo first; env -i setsid /bin/sh -c 'echo $$ >> " + pids + "." +
                       "'$LOCAL_RANK'; exec sleep 1000' & while ! [ -s " + pids + ".$LOCAL_RANK ]; do :; done"});
  for (const char* rank : {".0", ".1"})
    for (const pid_t pid : pids_in(pids + rank, 1)) ::kill(pid, SIGKILL);
  CHECK(result.code == 0);
  CHECK(sorted_lines(result.output) == std::set<std::string>{"[rank0]: first", "[rank1]: first"});
}

TEST_CASE("run: a console that takes nothing holds up the end, and a signal ends that") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd reading(ends[0]), writing(ends[1]);
  TemporaryFolder folder;
  const std::string done = folder.file("done");
  RunningProgram launcher({kShoal, "run", "--nproc-per-node", "2", "--", "/bin/sh", "-c",
                           "head -c 60000 /dev/zero | tr '\\0' x; echo; echo ended >> " + done},
                          [&] { ::dup2(writing.get(), 1); });
  wait_for_lines(done, 2);
  // One of them is written and the other one waits for the reader, who never comes.
  int there = 0;
  while (::ioctl(reading.get(), FIONREAD, &there) == 0 && there < 60'000) std::this_thread::yield();
  // Ranks gone: all that is left to do is to write.
  auto has_ranks = [&] {
    std::ifstream children("/proc/" + std::to_string(launcher.pid()) + "/task/" + std::to_string(launcher.pid()) +
                           "/children");
    int count = 0;
    for (pid_t pid; children >> pid;) ++count;
    return count > 1;  // the guard
  };
  while (has_ranks()) std::this_thread::yield();
  launcher.signal(SIGTERM);
  CHECK(launcher.finish().code == -SIGTERM);
}

TEST_CASE("run: SIGUSR1 ends the run in order where it is asked for, and reaches the ranks") {
  TemporaryFolder folder;
  const std::string ready = folder.file("ready"), told = folder.file("told");
  RunningProgram launcher(
      {kShoal, "run", "--nproc-per-node", "2", "--signals-to-handle", "SIGTERM,SIGUSR1", "--", "/bin/bash", "-c",
       "trap 'echo told >> " + told + "; exit 0' USR1; echo ready >> " + ready + "; while :; do sleep 0.01; done"});
  wait_for_lines(ready, 2);
  launcher.signal(SIGUSR1);
  const ProgramResult result = launcher.finish();
  CHECK(result.code == -SIGUSR1);
  CHECK(lines_of(told).size() == 2);
}

TEST_CASE("run: a rank that dies of the signal that ends the run is no failure") {
  TemporaryFolder folder;
  const std::string ready = folder.file("ready");
  RunningProgram launcher({kShoal, "run", "--nproc-per-node", "2", "--signals-to-handle", "SIGTERM,SIGUSR1", "--",
                           "/bin/sh", "-c", "echo ready >> " + ready + "; exec sleep 1000"});
  wait_for_lines(ready, 2);
  launcher.signal(SIGUSR1);
  const ProgramResult result = launcher.finish();
  CHECK(result.code == -SIGUSR1);
  CHECK(result.error == "");
}

namespace {

/// In a namespace of processes, as a container has one.
std::vector<std::string> in_container(std::vector<std::string> command) {
  command.insert(command.begin(), {"/usr/bin/unshare", "--fork", "--pid", "--mount-proc", "--kill-child"});
  return command;
}

bool has_containers() {
  if (run_program(in_container({"/bin/true"})).code == 0) return true;
  WARN("no namespace of processes is to be had here");
  return false;
}

}  // namespace

TEST_CASE("run: as process 1 it passes on what it is sent, and ends as the run does then") {
  if (!has_containers()) return;
  TemporaryFolder folder;
  // From inside, by a rank: the kernel keeps from process 1 what that neither blocks nor handles.
  const ProgramResult told = run_program(
      in_container({kShoal, "run", "--nproc-per-node", "2", "--", "/bin/bash", "-c",
                    "trap 'echo told; exit 0' TERM; echo $RANK >> $0; until [ $(wc -l < $0) = 2 ]; do :; done; "
                    "[ $RANK = 1 ] || kill -TERM 1; while :; do sleep 0.01; done",
                    folder.file("ready")}));
  CAPTURE(told.output, told.error);
  CHECK(told.code == 128 + SIGTERM);
  CHECK(sorted_lines(told.output) == std::set<std::string>{"[rank0]: told", "[rank1]: told"});
}

TEST_CASE("run: as process 1 it reaps what others leave, and ends as the run does") {
  if (!has_containers()) return;
  TemporaryFolder folder;
  const ProgramResult zombies = run_program(in_container(
      {kShoal, "run", "--nproc-per-node", "2", "--", "/bin/bash", "-c",
       // Each orphan becomes process 1's, and is there until that has reaped it.
       "for i in 1 2 3; do orphan=$(/bin/true >/dev/null & echo $!); while [ -e /proc/$orphan ]; do :; done; done; "
       "echo clean; echo $RANK >> $0; until [ $(wc -l < $0) = 2 ]; do :; done; [ $RANK = 0 ] || exit 7",
       folder.file("done")}));
  CAPTURE(zombies.output, zombies.error);
  CHECK(zombies.code == 1);
  CHECK(sorted_lines(zombies.output).count("[rank0]: clean") == 1);
  CHECK_THAT(zombies.error, ContainsSubstring("exited with code 7"));
}

}  // namespace
}  // namespace shoal::test
