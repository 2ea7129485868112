#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <shoal/internal/runtime/cpu/binding.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/runtime/command/shoal_program.h"
#include "tests/support/catch.h"

namespace shoal::test {
namespace {

TEST_CASE("run: every rank sees its place, and its lines come out whole behind its number") {
  const ProgramResult result = run_ranks({"--nproc-per-node", "3", "--rdzv-id", "job7"}, {"env", "", "partial", ""});
  CHECK(result.code == 0);
  std::set<std::string> expected;
  for (const char* rank : {"0", "1", "2"}) {
    expected.insert(std::string("[rank") + rank + "]: rank " + rank + "/3 local " + rank +
                    "/3 node 0/1 restart 0 run job7 at shoal run");
    expected.insert(std::string("[rank") + rank + "]: no end of line");
  }
  CHECK(sorted_lines(result.output) == expected);
  CHECK(result.error.empty());
}

TEST_CASE("run: options are spelled as torchrun's, also with underscores, and end where the program begins") {
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--nproc_per_node", "2"}, {"--nproc-per-node=2", "--standalone"}, {"--nproc_per_node=2", "--no-python"}}) {
    std::vector<std::string> command{kShoal, "run"};
    command.insert(command.end(), options.begin(), options.end());
    // Without `--`: options of the program's own are left to it.
    command.insert(command.end(), {"/bin/sh", "-c", "echo $WORLD_SIZE $1 $2", "sh", "--nnodes", "--"});
    const ProgramResult result = run_program(command);
    CHECK(result.code == 0);
    CHECK(sorted_lines(result.output) == std::set<std::string>{"[rank0]: 2 --nnodes --", "[rank1]: 2 --nnodes --"});
  }
}

TEST_CASE("run: one rank has the launcher's own output, without a prefix") {
  const ProgramResult result = run_program({kShoal, "run", "--", "/bin/sh", "-c", "echo out; echo err >&2"});
  CHECK(result.code == 0);
  CHECK(result.output == "out\n");
  CHECK(result.error == "err\n");
}

TEST_CASE("run: what a rank starts divides the rank's share of the CPUs, unless the user has said how many threads") {
  const ProgramResult shared = run_ranks({"--nproc-per-node", "2"}, {"share", "1000"});
  CAPTURE(shared.error);
  CHECK(sorted_lines(shared.output) ==
        std::set<std::string>{"[rank0]: each of 1000 computes with 1", "[rank1]: each of 1000 computes with 1"});
  const auto users = [](const char* threads) { return [=] { ::setenv("OMP_NUM_THREADS", threads, 1); }; };
  const ProgramResult said = run_program(ranks_command({}, {"share", "1000"}), users("3"));
  CHECK(said.output == "each of 1000 computes with 0\n");  // nobody sets it: they have the variable
  const ProgramResult script = run_program(
      {kShoal, "run", "--", "/bin/sh", "-c", "OMP_NUM_THREADS=77 " + std::string(kRankProgram) + " share 1000"});
  CHECK(script.output == "each of 1000 computes with 0\n");
}

TEST_CASE("run: ranks of one host are in the launcher's session, and meet there by name") {
  const ProgramResult result = run_ranks({"--nproc-per-node", "3"}, {"meet", "", "spawn", ""});
  CAPTURE(result.error);
  CHECK(result.code == 0);
  CHECK(sorted_lines(result.output).size() == 3);
  CHECK_THAT(result.output, ContainsSubstring("met in session of 3"));
}

/// From now on a system call that makes an internet socket ends this process and all that it starts.
void forbid_internet() {
  const auto family = offsetof(seccomp_data, args[0]);
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, family),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{sizeof program / sizeof *program, program};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) ::_exit(125);
}

TEST_CASE("run: on one host no port is opened, not even a socket that could have one") {
  // The filter works: it would be noticed.
  const ProgramResult caught = run_program({"/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9"}, forbid_internet);
  CHECK(caught.code == -SIGSYS);
  const ProgramResult result =
      run_program(ranks_command({"--nproc-per-node", "2", "--max-restarts", "1"}, {"meet", "", "exit-first", "1"}),
                  forbid_internet);
  CAPTURE(result.error);
  CHECK(result.code == 0);
}

namespace {

/// A line is a rank's, the launcher's, or goes on with the launcher's above it.
void check_prefixes(const std::string& error) {
  std::istringstream lines(error);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK((line.starts_with("shoal: ") || line.starts_with("[rank") || line.starts_with("  ")));
  }
}

}  // namespace

TEST_CASE("run: a failed rank ends the others, and the summary names the root cause") {
  struct Case {
    const char* how;
    const char* says;
  };
  for (const Case& one : {Case{"throw", "std::terminate was called for std::out_of_range: thrown by a rank"},
                          Case{"segv", "was killed by SIGSEGV"}, Case{"kill", "was killed by SIGKILL"},
                          Case{"exit", "exited with code 3"}}) {
    CAPTURE(one.how);
    const ProgramResult result =
        run_ranks({"--nproc-per-node", "3"}, {"stderr", "last words", one.how, "1", "wait", ""});
    CAPTURE(result.error);
    CHECK(result.code == 1);
    CHECK_THAT(result.error, ContainsSubstring("failed. The root cause:\n  rank 1 (pid "));
    check_prefixes(result.error);
    CHECK_THAT(result.error, ContainsSubstring(one.says));
    CHECK_THAT(result.error, ContainsSubstring("    | last words\n"));
    CHECK_THAT(result.error, !ContainsSubstring("Later"));
  }
}

TEST_CASE("run: a crash comes with its stack") {
  const ProgramResult result = run_ranks({"--nproc-per-node", "2"}, {"throw", "1", "wait", ""});
  CAPTURE(result.error);
  CHECK_THAT(result.error, ContainsSubstring("#0 "));
  CHECK_THAT(result.error, ContainsSubstring("main"));
  CHECK_THAT(result.error, ContainsSubstring("rank_program"));
}

TEST_CASE("init: a failure that nobody catches is printed with all that is known of it") {
  const ProgramResult result = run_program({kRankProgram, "spawn-uncaught", ""});
  CAPTURE(result.error);
  CHECK(result.code == -SIGABRT);
  CHECK_THAT(result.error, ContainsSubstring("shoal: rank 0 (pid ") &&
                               ContainsSubstring("raised std::domain_error: thrown by a child\n") &&
                               ContainsSubstring("  #0 ") && ContainsSubstring("    | last words of a child\n"));
}

TEST_CASE("run: all ranks are started again as often as allowed") {
  TemporaryFolder folder;
  const std::string starts = folder.file("starts");
  auto starts_of_rank_1 = [&] {
    auto lines = lines_of(starts);
    std::erase_if(lines, [](const std::string& line) { return !line.starts_with("1/2"); });
    return lines;
  };
  SECTION("enough") {
    const ProgramResult result =
        run_ranks({"--nproc-per-node", "2", "--max-restarts", "2"}, {"round-to", starts, "exit-first", "2"});
    CAPTURE(result.error);
    CHECK(result.code == 0);
    // Rank 0 may be told to end before it has written anything, but not at the last start.
    CHECK(starts_of_rank_1() == std::vector<std::string>{"1/2 of start 0", "1/2 of start 1", "1/2 of start 2"});
    const auto lines = lines_of(starts);
    CHECK(std::count(lines.begin(), lines.end(), "0/2 of start 2") == 1);
    CHECK_THAT(result.error, ContainsSubstring("all ranks are started again: rank 1 (pid "));
    check_prefixes(result.error);
  }
  SECTION("not enough") {
    const ProgramResult result =
        run_ranks({"--nproc-per-node", "2", "--max-restarts", "1"}, {"round-to", starts, "exit-first", "2"});
    CHECK(result.code == 1);
    CHECK(starts_of_rank_1() == std::vector<std::string>{"1/2 of start 0", "1/2 of start 1"});
    CHECK_THAT(result.error, ContainsSubstring("exited with code 4"));
  }
}

TEST_CASE("run: a starter that ignores SIGCHLD takes no exit code away") {
  CHECK(run_program({"/bin/bash", "-c", "trap '' CHLD; exec " + kShoal + " run true"}).code == 0);
  CHECK(run_program({"/bin/bash", "-c", "trap '' CHLD; exec " + kShoal + " run --nproc-per-node 2 -- sh -c 'exit 3'"})
            .code == run_program({kShoal, "run", "--nproc-per-node", "2", "--", "sh", "-c", "exit 3"}).code);
}

TEST_CASE("run: logs without a folder are in one of their own in TMPDIR") {
  TemporaryFolder folder;
  const ProgramResult result = run_program({"/usr/bin/env", "TMPDIR=" + folder.path(), kShoal, "run", "--rdzv-id",
                                            "a/b", "--redirects", "3", "--", "sh", "-c", "echo here"});
  CHECK(result.code == 0);
  std::vector<std::string> made;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) made.push_back(entry.path().filename());
  REQUIRE(made.size() == 1);
  CHECK_THAT(made[0], Catch::Matchers::StartsWith("shoal-run-a_b_"));
  CHECK(lines_of(folder.file(made[0]) + "/attempt_0/0/stdout.log") == std::vector<std::string>{"here"});
}

TEST_CASE("run: output goes to files, to both, or for some ranks only") {
  TemporaryFolder folder;
  SECTION("redirected") {
    const ProgramResult result =
        run_ranks({"--nproc-per-node", "2", "--log-dir", folder.path(), "--redirects", "3", "--rdzv-id", "it"},
                  {"env", "", "stderr", "words"});
    CHECK(result.output.empty());
    CHECK(result.error.empty());
    const ProgramResult found = run_program({"/bin/sh", "-c", "cd " + folder.path() + "/it_* && grep -rc '' . | sort"});
    CHECK(found.output ==
          "./attempt_0/0/stderr.log:1\n./attempt_0/0/stdout.log:1\n./attempt_0/1/stderr.log:1\n./attempt_0/1/"
          "stdout.log:1\n");
  }
  SECTION("tee, of one rank") {
    const ProgramResult result = run_ranks(
        {"--nproc-per-node", "2", "--log-dir", folder.path(), "--tee", "1:1", "--rdzv-id", "it"}, {"env", ""});
    CHECK(sorted_lines(result.output).size() == 2);
    const ProgramResult found = run_program({"/bin/sh", "-c", "cd " + folder.path() + "/it_* && grep -rh '' . "});
    CHECK_THAT(found.output, StartsWith("rank 1/2"));
  }
  SECTION("a filter") {
    const ProgramResult result = run_ranks({"--nproc-per-node", "3", "--local-ranks-filter", "0,2"}, {"env", ""});
    CHECK(sorted_lines(result.output).size() == 2);
    CHECK_THAT(result.output, !ContainsSubstring("[rank1]"));
  }
  SECTION("the summary names the file") {
    const ProgramResult result =
        run_ranks({"--nproc-per-node", "2", "--log-dir", folder.path(), "-r", "2"}, {"exit", "0", "wait", ""});
    CHECK_THAT(result.error, ContainsSubstring("/attempt_0/0/stderr.log"));
  }
}

TEST_CASE("run: a file has its options and the program, variables go over it, and the command line over both") {
  TemporaryFolder folder;
  const std::string file = folder.file("job.toml"), saved = folder.file("saved.toml");
  std::ofstream(file)
      << "nproc_per_node = 2\nmax_restarts = 1\nprogram = [\"/bin/sh\", \"-c\", \"echo $WORLD_SIZE\"]\n";
  const auto run = [&](const std::vector<std::string>& before, const std::vector<std::string>& words) {
    std::vector<std::string> command{"/usr/bin/env"};
    command.insert(command.end(), before.begin(), before.end());
    command.insert(command.end(), {kShoal, "run", "--config", file});
    command.insert(command.end(), words.begin(), words.end());
    return run_program(command);
  };
  CHECK(sorted_lines(run({}, {}).output) == std::set<std::string>{"[rank0]: 2", "[rank1]: 2"});
  CHECK(run({"SHOAL_RUN_NPROC_PER_NODE=1"}, {}).output == "1\n");
  CHECK(run({"SHOAL_RUN_NPROC_PER_NODE=1"}, {"--nproc_per_node", "3", "--save-config", saved}).output.size() == 33);
  CHECK(run({}, {"nproc_per_node=1", "/bin/echo", "nproc_per_node=2"}).output == "nproc_per_node=2\n");
  CHECK(run({}, {"--nproc-per-node=1", "--", "/bin/echo", "this"}).output == "this\n");
  const ProgramResult printed = run({"SHOAL_RUN_TEE=3"}, {"--nnodes", "1:2", "--print-config", "/bin/true", "x"});
  CHECK(printed.code == 0);
  for (const char* line : {"nproc_per_node = \"2\"", "max_restarts = 1 ", "tee = \"3\"", "nnodes = \"1:2\"",
                           "program = [\"/bin/true\", \"x\"]"})
    CHECK_THAT(printed.output, ContainsSubstring(line));
  // What was saved is the same run.
  CHECK(sorted_lines(run_program({kShoal, "run", "--config", saved}).output).size() == 3);
  const ProgramResult bad = run({"SHOAL_RUN_NPROC_PER_NODE=many"}, {});
  CHECK(bad.code == 4);
  CHECK_THAT(bad.error, ContainsSubstring("SHOAL_RUN_NPROC_PER_NODE=many in the environment: give a number from 1"));
  CHECK_THAT(run({"SHOAL_RUN_NPROC_PER_NOD=1"}, {"true"}).error,
             ContainsSubstring("SHOAL_RUN_NPROC_PER_NOD stands for no option; SHOAL_RUN_NPROC_PER_NODE does"));
}

TEST_CASE("run: what is wrong with the command line is one line and a code of its own") {
  struct Case {
    std::vector<std::string> arguments;
    const char* says;
    int code = 4;
  };
  for (const Case& one : std::vector<Case>{
           {{"run"}, "which program?", 2},
           {{"run", "--nproc-per-node", "-1", "true"}, "--nproc-per-node -1: give a number from 1"},
           {{"run", "--nproc-per-node", "many", "true"}, "--nproc-per-node many"},
           {{"run", "--nnodes", "4:1", "true"}, "--nnodes 4:1: give the number of hosts"},
           {{"run", "--node-rank", "2", "--nnodes", "2", "--rdzv-endpoint", "h:1", "true"}, "--node-rank 2"},
           {{"run", "--nnodes", "2", "--rdzv-endpoint", "::1", "true"},
            "--rdzv-endpoint ::1: an address of IPv6 stands in"},
           {{"run", "--max-restarts", "-2", "true"}, "--max-restarts -2"},
           {{"run", "--redirects", "7", "true"}, "--redirects 7"},
           {{"run", "--tee", "0:1,x", "true"}, "--tee 0:1,x"},
           {{"run", "--binding", "socket", "true"}, "--binding socket: must be one of none, core, cache, numa"},
           {{"run", "--rdzv-backend", "etcd", "true"}, "--rdzv-backend etcd"},
           {{"run", "--shutdown-timeout", "-1", "true"}, "--shutdown-timeout -1"},
           {{"run", "--bogus", "true"}, "no option --bogus", 2},
           {{"run", "--nproc_per_nod=2", "true"}, "no option --nproc_per_nod=2: did you mean --nproc_per_node?", 2},
           {{"run", "--config", "/nowhere/job.toml", "true"}, "/nowhere/job.toml: there is no such file"},
           {{"run", "rdzv_conf.join_timeout=soon", "true"}, "must be a number"},
           {{"run", "--nproc-per-node"}, "--nproc-per-node", 2},
           {{"run", "--max-restarts", "few", "true"}, "--max-restarts"},
           {{"run", "--"}, "which program?", 2},
           {{"top", "--interval", "0"}, "--interval"},
           {{"top", "--interval", "often"}, "--interval"},
           {{"top", "--bogus"}, "--bogus", 2},
           {{"trace", "--for", "soon"}, "--for is 'soon'"},
           {{"trace", "--for", "-1s"}, "--for is '-1s'"},
           {{"trace", "--bogus"}, "--bogus", 2},
           {{"run", "--rdzv-conf", "join_timout=5", "true"},
            "no option 'rdzv_conf.join_timout': did you mean 'join_timeout'?"},
           {{"run", "--signals-to-handle", "SIGKILL", "true"}, "SIGKILL is no signal that can end a run"},
           {{"walk"}, "there is no subcommand walk: there are run, top, trace", 2},
           {{"rnu", "--nproc-per-node", "2", "true"}, "there is no subcommand rnu: did you mean run?", 2},
           {{}, "subcommand", 2}}) {
    CAPTURE(one.arguments);
    std::vector<std::string> command{kShoal};
    command.insert(command.end(), one.arguments.begin(), one.arguments.end());
    const ProgramResult result = run_program(command);
    CHECK(result.code == one.code);
    CHECK_THAT(result.error, ContainsSubstring(one.says));
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 1);
    CHECK(result.output.empty());
  }
}

/// Where each of the texts begins in what was said, after the one before it; npos where one is missing.
std::size_t in_order(const std::string& said, const std::vector<std::string>& texts) {
  std::size_t at = 0;
  for (const std::string& text : texts) {
    INFO("looks for '" << text << "' in\n" << said);
    at = said.find(text, at);
    CHECK(at != std::string::npos);
    if (at == std::string::npos) break;
  }
  return at;
}

TEST_CASE("run: SHOAL_LOG has the launcher tell its steps: starts, ends, failures, restarts") {
  const auto command = ranks_command({"--nproc-per-node", "2", "--max-restarts", "1"}, {"exit-first", "1"});
  const ProgramResult told = run_program(command, [] { ::setenv("SHOAL_LOG", "info", 1); });
  CHECK(told.code == 0);
  in_order(told.error, {"joins the rendezvous with 2 ranks of ", "start 0: host 0 of 1, ranks 0 to 1 of 2",
                        "started rank 0 (local 0): pid ", "started rank 1 (local 1): pid ", "rank 1 has ended: ",
                        "reports a failure to the rendezvous: ", "tells 1 ranks to end by SIGTERM",
                        "rank 0 has ended: ", "joins the rendezvous again", "start 1: host 0 of 1", "1 restarts so far",
                        "all ranks of this host have ended well", "ends with code 0"});
  CHECK_THAT(told.error, ContainsSubstring(" shoal info [shoal run, pid "));

  const ProgramResult quiet = run_program(command, [] { ::unsetenv("SHOAL_LOG"); });
  CHECK(quiet.code == 0);
  CHECK_THAT(quiet.error, !ContainsSubstring(" shoal info "));
}

TEST_CASE("run: SHOAL_LOG has the launcher tell of signals that it got") {
  TemporaryFolder folder;
  const std::string ready = folder.file("ready");
  RunningProgram run(ranks_command({}, {"pid-to", ready, "wait", ""}), [] { ::setenv("SHOAL_LOG", "info", 1); });
  wait_for_lines(ready, 1);
  run.signal(SIGTERM);
  const ProgramResult told = run.finish();
  CHECK(told.code == -SIGTERM);
  in_order(told.error,
           {"started rank 0 (local 0)", "got SIGTERM", "tells 1 ranks to end by SIGTERM; SIGKILL follows after 30 s",
            "rank 0 has ended: ", "ends with code 143"});
}

TEST_CASE("run: a companion that dies is told with its last words") {
  TemporaryFolder folder;
  std::filesystem::copy_file(kShoal, folder.file("shoal"));
  // As the linker's last words where a library is missing.
  std::ofstream(folder.file("shoal-rendezvous"))
      << "#!/bin/sh\necho 'no such library: libtorch_cpu.so' >&2\nexit 127\n";
  ::chmod(folder.file("shoal-rendezvous").c_str(), 0755);
  const ProgramResult result =
      run_program({folder.file("shoal"), "run", "--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:9", "--", "/bin/true"});
  CHECK(result.code == 3);
  CHECK_THAT(result.error, ContainsSubstring("shoal-rendezvous has died: no such library: libtorch_cpu.so"));
}

TEST_CASE("run: a file that cannot be executed fails the run") {
  TemporaryFolder folder;
  std::ofstream(folder.file("text")) << "no program\n";
  ::chmod(folder.file("text").c_str(), 0755);
  const ProgramResult result = run_program({kShoal, "run", folder.file("text")});
  CHECK(result.code == 126);
  CHECK_THAT(result.error, ContainsSubstring("is it a program of this machine"));
}

TEST_CASE(
    "run: a program that is not there, or cannot be executed, is one line and a code of its own, as with a shell") {
  TemporaryFolder folder;
  std::ofstream(folder.file("plain")) << "#!/bin/sh\n";
  struct Case {
    std::string program;
    const char* says;
    int code;
  };
  for (const Case& one :
       {Case{"/nowhere/program", "/nowhere/program is no program that can be executed: No such", 127},
        Case{folder.file("plain") + "/program", "Not a directory", 127},
        Case{"no-such-program", "no-such-program is no program in PATH", 127}, Case{"", "is no program in PATH", 127},
        Case{folder.path(), "Is a directory", 126}, Case{folder.file("plain"), "Permission denied", 126}}) {
    CAPTURE(one.program);
    const ProgramResult result = run_program({kShoal, "run", "--", one.program});
    CHECK(result.code == one.code);
    CHECK_THAT(result.error, ContainsSubstring(one.says));
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 1);
    CHECK(result.output.empty());
  }
}

TEST_CASE("run: ranks are bound to their part of the CPUs") {
  const ProgramResult result = run_program({kShoal, "run", "--nproc-per-node", "2", "--binding", "core", "--",
                                            "/bin/grep", "Cpus_allowed_list", "/proc/self/status"});
  CHECK(result.code == 0);
  const auto lines = sorted_lines(result.output);
  REQUIRE(lines.size() == 2);
  const auto parts = divide_cpus(Binding::core, 2);
  int rank = 0;
  for (const std::string& line : lines) {
    const std::string cpus = parts[std::size_t(rank)].cpus.text();
    CHECK(line == "[rank" + std::to_string(rank) + "]: Cpus_allowed_list:\t" + cpus);
    ++rank;
  }
}

}  // namespace
}  // namespace shoal::test
