// The table of a sweep, on a terminal and elsewhere, and what a sweep finds in its folder.
#include <shoal/internal/runtime/sweep/board.h>

#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/internal/runtime/sweep/run_folder.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/config_error.h>

#include <filesystem>
#include <fstream>

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
  const std::string whole = "seconds = 2.0\n[result]\nx = 3\n";
  for (std::size_t size = 0; size < whole.find("]"); ++size) {
    CAPTURE(size);
    std::ofstream(folder.file("result.toml")) << whole.substr(0, size);
    CHECK_FALSE(is_kept(folder.path(), run, outcome));
  }
  std::ofstream(folder.file("result.toml")) << whole;
  CHECK(is_kept(folder.path(), run, outcome));
  CHECK(outcome.seconds == 2);
  CHECK(outcome.result.entries.size() == 1);
  CHECK_FALSE(is_kept(folder.path(), {{"1"}, "a=1", "a = 2\n"}, outcome));
}

TEST_CASE("sweep folder: of a log that is longer than what is read, the whole lines at its end") {
  const test::TemporaryFolder folder;
  std::ofstream(folder.file("log.txt")) << "result: x=1\nresult: x=2\nlast";
  CHECK(last_lines_in(folder.file("log.txt"), 1000) == "result: x=1\nresult: x=2\nlast");
  CHECK(last_lines_in(folder.file("log.txt"), 16) == "last");
  CHECK(last_lines_in(folder.file("log.txt"), 17) == "result: x=2\nlast");
  CHECK(last_lines_in(folder.file("log.txt"), 2).empty());
  CHECK(last_lines_in(folder.file("none"), 1000).empty());
}

}  // namespace
}  // namespace shoal::detail
