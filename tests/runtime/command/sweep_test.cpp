// shoal run --sweep.
#include <shoal/internal/runtime/command/run/program_sweep.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/runtime/command/shoal_program.h"
#include "tests/support/catch.h"
#include "tests/support/guard.h"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;

std::string text_in(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Of a child that nobody has waited for.
bool has_ended(pid_t pid) {
  siginfo_t seen{};
  return ::waitid(P_PID, id_t(pid), &seen, WEXITED | WNOWAIT | WNOHANG) != 0 || seen.si_pid != 0;
}

bool is_stopped(pid_t pid) {
  const std::string status = text_in("/proc/" + std::to_string(pid) + "/stat");
  return status.find(") T ") != std::string::npos;
}

using Rows = std::vector<std::vector<std::string>>;
Rows rows_of(const std::string& table) {
  Rows rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    rows.emplace_back();
    for (std::string word; words >> word;) rows.back().push_back(word);
  }
  return rows;
}

/// `shoal run OPTIONS --sweep-folder runs --sweep AXES -- sh -c SCRIPT sh`: the script's arguments are the words.
std::vector<std::string> sweep_command(const TemporaryFolder& folder, const std::vector<std::string>& options,
                                       const std::vector<std::string>& axes, const std::string& script) {
  std::vector<std::string> command{kShoal, "run"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--sweep-folder", folder.file("runs"), "--sweep"});
  command.insert(command.end(), axes.begin(), axes.end());
  command.insert(command.end(), {"--", "/bin/sh", "-c", script, "sh"});
  return command;
}

TEST_CASE("run sweep: the program runs once for each combination, and what it says of itself is in the table") {
  TemporaryFolder folder;
  const std::string script = "echo $@ >>" + folder.file("calls") + "; echo noise; echo result: loss=0.25 best=$1";
  const ProgramResult result = run_program(sweep_command(folder, {}, {"lr=0.1,0.01", "shape=[3,4],[5]"}, script));
  CAPTURE(result.output, result.error);
  CHECK(result.code == 0);
  CHECK(lines_of(folder.file("calls")) ==
        std::vector<std::string>{"lr=0.1 shape=[3,4]", "lr=0.1 shape=[5]", "lr=0.01 shape=[3,4]", "lr=0.01 shape=[5]"});
  const Rows rows = rows_of(result.output);
  REQUIRE(rows.size() == 5);
  CHECK(rows[0] == std::vector<std::string>{"lr", "shape", "exit", "loss", "best", "seconds", "state"});
  CHECK(rows[3][0] == "0.01");
  CHECK(rows[3][1] == "[3,4]");
  CHECK(rows[3][2] == "0");
  CHECK(rows[3][3] == "0.25");
  CHECK(rows[3][4] == "lr=0.01");
  CHECK(rows[3][6] == "done");
  CHECK_THAT(result.error, ContainsSubstring("[4/4] lr=0.01,shape=[5]: done"));
  const fs::path first = fs::path(folder.file("runs")) / "lr=0.1,shape=[3,4]";
  CHECK(text_in(first / "log.txt") == "noise\nresult: loss=0.25 best=lr=0.1\n");
  CHECK_THAT(text_in(first / "config.toml"), ContainsSubstring("shape=[3,4]"));
  // The folder's settings are those of a run that does the same.
  CHECK(run_program({kShoal, "run", "--config", (first / "config.toml").string()}).output ==
        text_in(first / "log.txt"));
}

TEST_CASE("run sweep: started again it runs what is not done, and what has other settings by now") {
  TemporaryFolder folder;
  const std::string script =
      "echo $1 >>" + folder.file("calls") + "; test $1 != a=2 || test -e " + folder.file("mended") + " || exit 7";
  const ProgramResult first = run_program(sweep_command(folder, {}, {"a=1,2,3"}, script));
  CAPTURE(first.output, first.error);
  CHECK(first.code == 1);
  const Rows rows = rows_of(first.output);
  REQUIRE(rows.size() == 4);
  CHECK(rows[2][1] == "7");
  CHECK(rows[2].back() == "failed");
  CHECK(rows[3].back() == "done");
  CHECK_THAT(first.error, ContainsSubstring("a=2: failed"));
  CHECK_THAT(text_in(fs::path(folder.file("runs")) / "a=2" / "failure.toml"), ContainsSubstring("exit = 7"));

  std::ofstream(folder.file("mended")) << "x";
  const ProgramResult second = run_program(sweep_command(folder, {}, {"a=1,2,3"}, script));
  CAPTURE(second.output);
  CHECK(second.code == 0);
  CHECK(lines_of(folder.file("calls")) == std::vector<std::string>{"a=1", "a=2", "a=3", "a=2"});
  CHECK_FALSE(fs::exists(fs::path(folder.file("runs")) / "a=2" / "failure.toml"));

  const ProgramResult third = run_program(sweep_command(folder, {"--role", "other"}, {"a=3"}, script));
  CHECK(third.code == 0);
  CHECK(lines_of(folder.file("calls")).size() == 5);
}

TEST_CASE("run sweep: a signal's end is told, too, and each run has the ranks that were asked for") {
  TemporaryFolder folder;
  const ProgramResult result = run_program(sweep_command(
      folder, {"--nproc-per-node", "2"}, {"a=1,2"},
      "echo $RANK $1 >>" + folder.file("calls") + "; test $1$RANK != a=20 || kill -9 $$; echo result: x=1"));
  CAPTURE(result.output, result.error);
  CHECK(result.code == 1);
  const Rows rows = rows_of(result.output);
  REQUIRE(rows.size() == 3);
  CHECK(rows[1][1] == "0");
  CHECK(rows[1][2] == "1");
  CHECK(rows[2][1] == "-9");
  CHECK_THAT(result.error, ContainsSubstring("SIGKILL"));
}

TEST_CASE("run sweep: a run that cannot be started, or whose result cannot be written, has failed, and others run") {
  TemporaryFolder folder;
  fs::create_directory(folder.file("runs"));
  std::ofstream(folder.file("runs/a=1")) << "no folder";
  fs::create_directories(folder.file("runs/a=2/log.txt"));
  const std::string script = "echo $1 >>" + folder.file("calls") +
                             "; test $1 != a=3 || { rm -r $SHOAL_SWEEP_FOLDER; touch $SHOAL_SWEEP_FOLDER; }";
  const ProgramResult result = run_program(sweep_command(folder, {"--at-once", "2"}, {"a=1,2,3,4,5"}, script));
  CAPTURE(result.output, result.error);
  CHECK(result.code == 1);
  const Rows rows = rows_of(result.output);
  REQUIRE(rows.size() == 6);
  for (std::size_t a = 1; a <= 5; ++a) CHECK(rows[a].back() == (a < 4 ? "failed" : "done"));
  CHECK(lines_of(folder.file("calls")).size() == 3);
  for (const char* why : {"a=1: Not a directory", "a=2/log.txt: Is a directory", "a=3/result.toml: Not a directory"})
    CHECK_THAT(result.error, ContainsSubstring(why));
}

TEST_CASE("run sweep: --at-once runs so many at the same time") {
  TemporaryFolder folder;
  // Each waits for the other one.
  const std::string script = "touch " + folder.file("$1") + "; for other in 1 2; do while ! test -e " +
                             folder.file("a=$other") + "; do sleep 0.01; done; done";
  const ProgramResult result = run_program(sweep_command(folder, {"--at-once", "2"}, {"a=1,2"}, script));
  CAPTURE(result.output, result.error);
  CHECK(result.code == 0);
}

TEST_CASE("run sweep: SIGTERM reaches the ranks, and the same command goes on later") {
  TemporaryFolder folder;
  const std::string script = "stop() { echo told >>" + folder.file("told") + "; exit 1; }; trap stop TERM; echo $1 >>" +
                             folder.file("calls") + "; test $1 = a=1 || while ! test -e " + folder.file("go") +
                             "; do sleep 0.01; done";
  RunningProgram sweep(sweep_command(folder, {}, {"a=1,2,3"}, script));
  wait_for_lines(folder.file("calls"), 2);
  sweep.signal(SIGTERM);
  const ProgramResult result = sweep.finish();
  CAPTURE(result.output, result.error);
  CHECK(result.code == -SIGTERM);
  CHECK(rows_of(result.output)[2].back() == "...");  // neither done nor failed
  CHECK_FALSE(fs::exists(fs::path(folder.file("runs")) / "a=2" / "result.toml"));
  CHECK(lines_of(folder.file("told")) == std::vector<std::string>{"told"});
  std::ofstream(folder.file("go")) << "x";
  CHECK(run_program(sweep_command(folder, {}, {"a=1,2,3"}, script)).code == 0);
  CHECK(lines_of(folder.file("calls")) == std::vector<std::string>{"a=1", "a=2", "a=2", "a=3"});
}

TEST_CASE("run sweep: stopped and continued at any moment, it goes on, and its runs do") {
  TemporaryFolder folder;
  const std::string script = "echo $1 >>" + folder.file("calls") + "; while ! test -e " + folder.file("go") +
                             "; do sleep 0.01; done; echo result: x=1";
  RunningProgram sweep(sweep_command(folder, {"--at-once", "2"}, {"a=1,2"}, script));
  wait_for_lines(folder.file("calls"), 2);
  for (int i = 0; i < 30 * test_scale(); ++i) {
    sweep.signal(SIGTSTP);
    if (i % 3 != 0) ::usleep(useconds_t(500 * (i % 7)));
    sweep.signal(SIGCONT);
    if (i % 2 != 0) ::usleep(useconds_t(700 * (i % 5)));
  }
  std::ofstream(folder.file("go")) << "x";
  // Continued before it had stopped, it stops after that, as any program does that stops itself.
  while (!has_ended(sweep.pid())) {
    if (is_stopped(sweep.pid())) sweep.signal(SIGCONT);  // only then: LeakSanitizer takes no signals at the end
    ::usleep(10'000);
  }
  const ProgramResult result = sweep.finish();
  CAPTURE(result.output, result.error);
  CHECK(result.code == 0);
  CHECK(rows_of(result.output)[2].back() == "done");
}

TEST_CASE("run sweep: SIGKILL of it ends all that its runs have started, in runs of their own as well") {
  TemporaryFolder folder;
  const std::string writers = "setsid /bin/sh -c 'while :; do echo a >>" + folder.file("calls") +
                              "; sleep 0.01; done' & while :; do echo b >>" + folder.file("calls") +
                              "; sleep 0.01; done";
  RunningProgram sweep({kShoal, "run", "--sweep-folder", folder.file("runs"), "--sweep", "a=1", "--", kShoal, "run",
                        "--", "/bin/sh", "-c", writers, "sh"});
  wait_for_lines(folder.file("calls"), 10);
  sweep.signal(SIGKILL);
  CHECK(sweep.finish().code == -SIGKILL);
  // Until they are gone: their guards look again and again.
  for (std::size_t before = 0, same = 0; same < 10;) {
    const std::size_t now = lines_of(folder.file("calls")).size();
    same = now == before ? same + 1 : 0;
    before = now;
    ::usleep(30'000);
  }
}

TEST_CASE("run sweep: what its program writes into its folder is the program's affair") {
  TemporaryFolder folder;
  const std::string script =
      "echo $1 >>" + folder.file("calls") +
      "; echo result: x=7; cd $SHOAL_SWEEP_FOLDER; echo mine >config.toml; rm log.txt; mkfifo log.txt";
  const ProgramResult first = run_program(sweep_command(folder, {}, {"a=1,2"}, script));
  CAPTURE(first.output, first.error);
  CHECK(first.code == 0);
  CHECK(rows_of(first.output)[1][2] == "7");
  CHECK(run_program(sweep_command(folder, {}, {"a=1,2,3"}, script)).code == 0);
  CHECK(lines_of(folder.file("calls")).size() == 3);
}

TEST_CASE("run sweep: nobody need read the table") {
  TemporaryFolder folder;
  const auto without_output = [] { ::close(STDOUT_FILENO); };
  const ProgramResult result = run_program(sweep_command(folder, {}, {"a=1,2"}, "true"), without_output);
  CAPTURE(result.error);
  CHECK(result.code == 0);
  CHECK_THAT(result.error, ContainsSubstring("a=2: done") && ContainsSubstring("the table cannot be written"));
}

#ifndef __SANITIZE_ADDRESS__  // UBSan looks at an object by way of a pipe, and calls it none where it gets no descriptor
TEST_CASE("run sweep: runs that find no room wait for one") {
  TemporaryFolder folder;
  const auto few_descriptors = [] {
    const rlimit few{30, 30};
    ::setrlimit(RLIMIT_NOFILE, &few);
  };
  std::string values = "a=0";
  for (int i = 1; i < 30; ++i) values += "," + std::to_string(i);
  const ProgramResult result =
      run_program(sweep_command(folder, {"--at-once", "30"}, {values}, "sleep 0.05"), few_descriptors);
  CAPTURE(result.output, result.error);
  CHECK(result.code == 0);
  for (const auto& row : rows_of(result.output)) CHECK((row.back() == "done" || row.back() == "state"));
}
#endif

TEST_CASE("run sweep: another sweep in the same folder is refused, and leaves the first one's runs alone") {
  TemporaryFolder folder;
  const std::string script = "echo $1 >>" + folder.file("calls") + "; while ! test -e " + folder.file("go") +
                             "; do sleep 0.01; done; echo result: x=5";
  RunningProgram first(sweep_command(folder, {}, {"a=1"}, script));
  wait_for_lines(folder.file("calls"), 1);
  const ProgramResult second = run_program(sweep_command(folder, {}, {"a=1,2"}, script));
  CHECK(second.code != 0);
  CHECK_THAT(second.error, ContainsSubstring("another sweep"));
  std::ofstream(folder.file("go")) << "x";
  const ProgramResult result = first.finish();
  CAPTURE(result.output, result.error);
  CHECK(result.code == 0);
  CHECK(lines_of(folder.file("calls")) == std::vector<std::string>{"a=1"});
  CHECK(rows_of(result.output)[1][2] == "5");
}

TEST_CASE("run sweep: what makes no sense is refused before anything runs") {
  TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& options, const std::vector<std::string>& axes) {
    const ProgramResult result = run_program(sweep_command(folder, options, axes, "touch " + folder.file("ran")));
    CAPTURE(result.error);
    CHECK(result.code == 4);
    CHECK_FALSE(fs::exists(folder.file("ran")));
    CHECK_FALSE(fs::exists(folder.file("runs")));
    return result.error;
  };
  CHECK_THAT(refused({"--at-once", "0"}, {"a=1"}), ContainsSubstring("--at-once 0"));
  CHECK_THAT(refused({"--nnodes", "2", "--rdzv-endpoint", "here:1"}, {"a=1"}), ContainsSubstring("--nnodes 2"));
  CHECK_THAT(refused({}, {"a=1", "a=2"}), ContainsSubstring("a is there twice"));
  const ProgramResult nothing =
      run_program({kShoal, "run", "--sweep", "a=1", "--sweep-folder", folder.file("runs"), "--", "/no/such/program"});
  CHECK(nothing.code == 127);
  CHECK_FALSE(fs::exists(folder.file("runs")));
}

TEST_CASE("run sweep: the last result line of a log counts, of any rank, with numbers as numbers") {
  const config::Node table =
      command::result_in("result: x=1\n[rank3]: result: x=2 y=0.5 z=no =3 exit=9 x=7 w\nresults: x=3\nafter");
  CHECK(config::toml_text(table) == "x = 2\ny = 0.5\nz = \"no\"\n");
  CHECK(config::toml_text(command::result_in("12 %\r99 %\rresult: x=1\r\n")) == "x = 1\n");
  CHECK(config::toml_text(command::result_in("result: x=1 name=\xff y=2\n")) == "x = 1\ny = 2\n");
  CHECK(command::result_in("nothing\n").entries.empty());
  CHECK(command::result_in("").entries.empty());
}

}  // namespace
}  // namespace shoal::test
