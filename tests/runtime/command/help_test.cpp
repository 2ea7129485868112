// What the program shoal says of itself: its version, its options, its exit codes.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include "tests/runtime/command/shoal_program.h"
#include "tests/support/catch.h"
#include "tests/support/source_tree.h"

namespace shoal::test {
namespace {

TEST_CASE("shoal: --version says which one it is") {
  const ProgramResult result = run_program({kShoal, "--version"});
  CHECK(result.code == 0);
  CHECK(result.output.starts_with("shoal 0."));
  CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 1);
}

TEST_CASE("shoal: --completion completes subcommands, and the options of each, in bash") {
  const auto completed = [](const std::string& words, int at) {
    const ProgramResult result =
        run_program({"/bin/bash", "-c",
                     "source <(" + kShoal + " --completion bash); COMP_WORDS=(" + words +
                         "); COMP_CWORD=" + std::to_string(at) + "; _shoal; echo ${COMPREPLY[@]}"});
    CHECK(result.error.empty());
    return result.output;
  };
  CHECK(completed("shoal st", 1) == "stacks\n");
  CHECK(completed("shoal run --nno", 2) == "--nnodes\n");
  CHECK(completed("shoal top --nno", 2) == "\n");
  CHECK(completed("shoal run --nnodes 2 --stan", 4) == "--standalone\n");
  const ProgramResult other = run_program({kShoal, "--completion", "fish"});
  CHECK(other.code == 4);
  CHECK_THAT(other.error, ContainsSubstring("fish"));
}

TEST_CASE("run: top and trace of a session that is not there are one line and a code of its own") {
  for (const char* what : {"top", "trace"}) {
    const ProgramResult result = run_program({kShoal, what, "no-such-session"});
    CHECK(result.code == 1);
    CHECK_THAT(result.error, ContainsSubstring("no-such-session"));
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 1);
  }
}

/// The text that `shoal WHAT --help` has beside or below each option, by the option's long name.
std::map<std::string, std::string> described_options(const std::string& help) {
  std::map<std::string, std::string> options;
  std::istringstream lines(help);
  std::string current;
  for (std::string line; std::getline(lines, line);) {
    const auto text = line.find_first_not_of(' ');
    if (text == std::string::npos || text == 0) {
      current.clear();
      continue;
    }
    if (line[text] == '-') {
      const auto name = line.find("--");
      current = line.substr(name, line.find_first_of(" =,", name) - name);
    }
    if (current.empty()) continue;
    // Descriptions have a column of their own.
    const auto column = line.rfind("  ");
    if (column > text || line[text] != '-') options[current] += line.substr(column + 2);
    options[current] += "";
  }
  return options;
}

TEST_CASE("run: --help describes every option that torchrun's users know, and every exit code, as docs/run.md does") {
  const ProgramResult help = run_program({kShoal, "run", "--help"});
  CHECK(help.code == 0);
  CHECK(help.error.empty());
  const auto options = described_options(help.output);
  for (const char* name :
       {"--nproc-per-node", "--nnodes", "--node-rank", "--rdzv-endpoint", "--rdzv-id", "--max-restarts",
        "--monitor-interval", "--log-dir", "--redirects", "--tee", "--standalone", "--shutdown-timeout"}) {
    CAPTURE(name, help.output);
    REQUIRE(options.count(name) == 1);
    CHECK(options.at(name).size() > 10);
  }
  std::ifstream page(in_sources("docs/run.md"));
  const std::string text((std::istreambuf_iterator<char>(page)), {});
  const auto codes = text.find("Exit codes:");
  REQUIRE(codes != std::string::npos);
  for (const char* code : {"0", "1", "2", "3", "4", "126", "127"}) {
    CAPTURE(code);
    CHECK_THAT(help.output, ContainsSubstring("\n  " + std::string(code) + " "));
    CHECK_THAT(text.substr(codes), ContainsSubstring(std::string(code) + " "));
  }
}

TEST_CASE("run: --help of top and of trace describes every option and exit code") {
  const char* what = GENERATE("top", "trace");
  const ProgramResult help = run_program({kShoal, what, "--help"});
  CHECK(help.code == 0);
  CAPTURE(help.output);
  const auto options = described_options(help.output);
  CHECK(options.size() >= 3);
  for (const auto& [name, text] : options) {
    CAPTURE(name);
    CHECK(text.size() > 10);
  }
  for (const char* code : {"\n  0 ", "\n  1 ", "\n  2 ", "\n  4 "}) CHECK_THAT(help.output, ContainsSubstring(code));
}

}  // namespace
}  // namespace shoal::test
