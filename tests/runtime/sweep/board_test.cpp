// The table of a sweep, on a terminal and elsewhere, and what a sweep finds in its folder.
#include <shoal/internal/runtime/sweep/board.h>

#include <fcntl.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/internal/runtime/sweep/run_folder.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/config_error.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

#include "tests/support/catch.h"
#include "tests/support/sink.h"
#include "tests/support/temporary_folder.h"

namespace shoal::detail {
namespace {

namespace fs = std::filesystem;
using test::Sink;
using State = SweepOutcome::State;

SweepBoard board_of(const std::vector<std::string>& values, int fd) {
  std::vector<SweepRun> runs;
  for (const std::string& value : values) runs.push_back({{value}, "a=" + value, ""});
  return {{{"a", values}}, runs, fd};
}

SweepOutcome done(const std::string& result) {
  return outcome_of("seconds = 1.0\n[result]\nx = " + result, "result.toml", State::done);
}

TEST_CASE("sweep board: on a terminal the table is drawn over the one before, and no line is wider than it") {
  const Sink terminal(true, 24, 12);
  SweepBoard board = board_of({"1", "22"}, terminal.fd());
  board.draw();
  board.set(1, done("'a long result'"));
  board.draw();
  CHECK(terminal.text() ==
        " a  seconds \r\n 1          \r\n22          \r\n"
        "\x1b[3A\x1b[J"
        " a          \r\n 1          \r\n22  a long r\r\n");
}

TEST_CASE("sweep board: what does not fit a terminal is not drawn") {
  const Sink terminal(true, 3, 80);
  SweepBoard board = board_of({"1", "2"}, terminal.fd());
  board.draw();
  CHECK(terminal.text().empty());
}

TEST_CASE("sweep board: a line for each run where there is no terminal, in which nothing moves a cursor") {
  const Sink pipe(false);
  SweepBoard board = board_of({"1", "2"}, pipe.fd());
  board.draw();
  board.set(1, done("\"b\\u001b[2J\\nc\""));
  CHECK(pipe.text() == "[1/2] a=2: done, x b?[2J?c, 1.0 s\n");
  CHECK_THAT(board.table(), ContainsSubstring("2  b?[2J?c      1.0  done\n"));
}

TEST_CASE("sweep board: columns are as wide as their characters, of which some have several bytes") {
  const Sink pipe(false);
  const SweepBoard board = board_of({"\u00fc\u00fc", "abc"}, pipe.fd());
  CHECK(board.table() == "  a  seconds  state\n \u00fc\u00fc           ...\nabc           ...\n");
}

TEST_CASE("sweep board: on a terminal, why a run failed is said below the table") {
  const Sink terminal(true);
  SweepBoard board = board_of({"1", "2"}, terminal.fd());
  board.draw();
  board.set(0, failed_by(std::runtime_error("no\nluck")));
  board.draw();
  CHECK_FALSE(ContainsSubstring("luck").match(terminal.text()));
  board.print();
  CHECK_THAT(terminal.text(), ContainsSubstring("a=1: failed, no luck\r\n"));
  board.print();
  CHECK(terminal.text().empty());
}

TEST_CASE("sweep board: a line for each run on a terminal that the table does not fit into") {
  const Sink terminal(true, 3, 80);
  SweepBoard board = board_of({"1", "2"}, terminal.fd());
  board.set(1, done("5"));
  CHECK(terminal.text() == "[1/2] a=2: done, x 5, 1.0 s\r\n");
}

TEST_CASE("sweep board: nobody who reads no further holds it up") {
  const Sink pipe(false);
  SweepBoard board = board_of(std::vector<std::string>(5000, std::string(50, 'v')), pipe.fd());
  for (std::size_t run = 0; run < 5000; ++run) board.set(run, done("5"));
  const std::string some = pipe.text();
  CHECK(some.size() >= 60'000);
  board.set(0, done("6"));
  CHECK_THAT(pipe.text(), ContainsSubstring("done, x 6, 1.0 s\n"));
}

TEST_CASE("sweep board: characters that take two columns, or none, keep the columns apart") {
  const Sink pipe(false);
  CHECK(board_of({"\u6f22", "abc", "e\u0301"}, pipe.fd()).table() ==
        "  a  seconds  state\n \u6f22           ...\nabc           ...\n  e\u0301           ...\n");
  CHECK(board_of({"\u009bx", "a\xff\xe6\xbc"}, pipe.fd()).table() ==
        "   a  seconds  state\n  ?x           ...\na???           ...\n");
  const Sink terminal(true, 24, 8);
  SweepBoard board = board_of({"\u6f22\u6f22\u6f22\u6f22\u6f22"}, terminal.fd());
  board.draw();
  CHECK_THAT(terminal.text(), ContainsSubstring("\n\u6f22\u6f22\u6f22\u6f22\r"));
}

TEST_CASE("sweep folder: one sweep at a time, and the next one when it is over") {
  const test::TemporaryFolder folder;
  const fs::path runs = folder.file("deep/runs");
  {
    const Fd taken = take_sweep_folder(runs);
    CHECK_THROWS_WITH(take_sweep_folder(runs), ContainsSubstring(runs.string()) && ContainsSubstring("another sweep"));
  }
  CHECK(take_sweep_folder(runs));
}

TEST_CASE("sweep folder: what is no folder is a SystemError that names it") {
  const test::TemporaryFolder folder;
  std::ofstream(folder.file("file")) << "x";
  CHECK_THROWS_AS(take_sweep_folder(folder.file("file")), SystemError);
  CHECK_THROWS_AS(prepare_run_folder(folder.file("file/run"), {}), SystemError);
  CHECK_THROWS_WITH(take_sweep_folder(folder.file("file/runs")), ContainsSubstring(folder.file("file/runs")));
}

TEST_CASE("sweep folder: a result that is empty, or half of one, is none") {
  const test::TemporaryFolder folder;
  const SweepRun run{{"1"}, "a=1", "a = 1\n"};
  prepare_run_folder(folder.path(), run);
  SweepOutcome outcome;
  CHECK_FALSE(is_kept(folder.path(), run, outcome));
  const std::string text = "seconds = 2.0\n[result]\nx = 3\n";
  write_result(folder.path(), run, text);
  std::ifstream stream(folder.file("result.toml"));
  const std::string whole{std::istreambuf_iterator<char>(stream), {}};
  for (std::size_t size = 0; size < whole.find("]"); ++size) {
    CAPTURE(size);
    std::ofstream(folder.file("result.toml")) << whole.substr(0, size);
    CHECK_FALSE(is_kept(folder.path(), run, outcome));
  }
  std::ofstream(folder.file("result.toml")) << whole;
  std::ofstream(folder.file("config.toml")) << "the program's own";
  CHECK(is_kept(folder.path(), run, outcome));
  CHECK(outcome.seconds == 2);
  CHECK(outcome.result.entries.size() == 1);
  CHECK_FALSE(is_kept(folder.path(), {{"1"}, "a=1", "a = 2\n"}, outcome));
  write_result(folder.path(), run, "seconds = 'x'\nresult = 3\n");
  CHECK_FALSE(is_kept(folder.path(), run, outcome));
  fs::remove(folder.file("result.toml"));
  fs::create_symlink("result.toml", folder.file("result.toml"));
  CHECK_FALSE(is_kept(folder.path(), run, outcome));
  fs::remove(folder.file("result.toml"));
  fs::create_directory(folder.file("result.toml"));
  CHECK_FALSE(is_kept(folder.path(), run, outcome));
}

TEST_CASE("sweep folder: a run has its name by its own values, whatever others there are") {
  const auto names = [](const std::vector<std::string>& axes) {
    std::vector<std::string> found;
    for (const SweepRun& run : plan_sweep(sweep_over(axes), [](const auto&) { return std::string(); }))
      found.push_back(run.name);
    return found;
  };
  CHECK(names({"lr=0.1,1e-2", "shape=[3,4]"}) == std::vector<std::string>{"lr=0.1,shape=[3,4]", "lr=1e-2,shape=[3,4]"});
  const auto both = names({"d=a/b,a_b,a:b"});
  CHECK(std::set<std::string>(both.begin(), both.end()).size() == 3);
  CHECK(both[1] == "d=a_b");
  CHECK(both[0].starts_with("d=a_b+"));
  CHECK(names({"d=a:b,a/b"}) == std::vector<std::string>{both[2], both[0]});
  const std::string long_path = "d=" + std::string(150, 'p');
  const auto cut = names({long_path + "1," + long_path.substr(2) + "2"});
  CHECK(cut[0] != cut[1]);
  CHECK(names({long_path + "2"})[0] == cut[1]);
  CHECK(cut[0].size() < 140);
  CHECK(names({"a=1,1,1"}) == std::vector<std::string>{"a=1", "a=1+2", "a=1+3"});
  CHECK(names({"--lr=3,4"}) == std::vector<std::string>{"--lr=3", "--lr=4"});
}

TEST_CASE("sweep folder: of a log that is longer than what is read, the whole lines at its end") {
  const test::TemporaryFolder folder;
  std::ofstream(folder.file("log.txt")) << "result: x=1\nresult: x=2\nlast";
  const Fd log = lift(Fd(::open(folder.file("log.txt").c_str(), O_RDONLY | O_CLOEXEC)));
  CHECK(last_lines_in(log, 1000) == "result: x=1\nresult: x=2\nlast");
  CHECK(last_lines_in(log, 16) == "last");
  CHECK(last_lines_in(log, 17) == "result: x=2\nlast");
  CHECK(last_lines_in(log, 2).empty());
  CHECK_THROWS_AS(last_lines_in(Fd(), 1000), SystemError);
}

}  // namespace
}  // namespace shoal::detail
