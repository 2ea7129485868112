#include <shoal/workers/sweep.h>

#include <shoal/internal/runtime/sweep/run_folder.h>
#include <shoal/runtime/init.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
namespace fs = std::filesystem;

namespace {

enum class Trouble { none, raise, kill, no_folder, leave };

struct Settings {
  double lr = 1;
  std::vector<int> sizes = {1};
  Trouble trouble = Trouble::none;
  std::string counter;  // a file that gets a byte each run
  void (*callback)() = nullptr;
};
struct Result {
  double product = 0;
  std::size_t sizes = 0;
};

Result work(const Settings& settings, const fs::path& folder) {
  std::ofstream(settings.counter, std::ios::app) << "x";
  std::ofstream(folder / "mine.txt") << "here";
  std::cout << "lr is ";
  std::printf("%g\n", settings.lr);
  std::fprintf(stderr, "to stderr\n");
  if (settings.trouble == Trouble::raise) throw std::runtime_error("no such luck");
  if (settings.trouble == Trouble::kill) ::kill(::getpid(), SIGKILL);
  if (settings.trouble == Trouble::leave) std::exit(0);
  if (settings.trouble == Trouble::no_folder) {
    fs::remove_all(folder);
    std::ofstream(folder) << "in its place";
  }
  return {settings.lr * settings.sizes[0], settings.sizes.size()};
}
double value_alone(const Settings& settings) { return settings.lr; }

std::string text_in(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

template <auto kFunction>
int run(const std::vector<std::string>& arguments, const test::TemporaryFolder& folder) {
  std::vector<std::string> all = {
      "program", "counter=" + folder.file("count"), "--sweep-folder", folder.file("runs"), "--sweep-processes", "2"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : all) argv.push_back(argument.data());
  return run_or_sweep<kFunction>(int(argv.size()), argv.data());
}

std::size_t count_runs(const test::TemporaryFolder& folder) { return text_in(folder.file("count")).size(); }

}  // namespace

TEST_CASE("sweep: all combinations run, and each has a folder with its settings and its result") {
  const test::TemporaryFolder folder;
  CHECK(run<work>({"--sweep", "lr=2,3", "sizes=[5,6],[7]", "--no-such-thing-is-here=1"}, folder) == 2);
  CHECK(run<work>({"--sweep", "lr=2,3", "sizes=[5,6],[7]"}, folder) == 0);
  CHECK(count_runs(folder) == 4);
  const fs::path one = folder.file("runs/lr=3,sizes=[5,6]");
  CHECK(text_in(one / "mine.txt") == "here");
  CHECK_THAT(text_in(one / "log.txt"),
             ContainsSubstring("lr is ") && ContainsSubstring("3\n") && ContainsSubstring("to stderr\n"));
  const auto settings = parse_config<Settings>(text_in(one / "config.toml"));
  CHECK(settings.lr == 3);
  CHECK(settings.sizes == std::vector<int>{5, 6});
  CHECK_THAT(text_in(one / "result.toml"), ContainsSubstring("\n[result]\nproduct = 15.0\nsizes = 2\n"));
  CHECK(std::distance(fs::directory_iterator(folder.file("runs")), {}) == 4);
}

TEST_CASE("sweep: started again, it runs what has no result for these settings, and nothing else") {
  const test::TemporaryFolder folder;
  CHECK(run<work>({"--sweep", "lr=1,2,3"}, folder) == 0);
  CHECK(run<work>({"--sweep", "lr=1,2,3"}, folder) == 0);
  CHECK(count_runs(folder) == 3);
  CHECK(run<work>({"--sweep", "lr=1,2,3,4"}, folder) == 0);
  CHECK(count_runs(folder) == 4);
  fs::remove(folder.file("runs/lr=2/result.toml"));
  fs::remove(folder.file("runs/lr=3/config.toml"));                     // that alone is the run's own affair
  std::ofstream(folder.file("runs/lr=3/result.toml")) << "result = [";  // cut short
  CHECK(run<work>({"--sweep", "lr=1,2,3,4"}, folder) == 0);
  CHECK(count_runs(folder) == 6);
  CHECK(run<work>({"sizes=9", "--sweep", "lr=1"}, folder) == 0);  // other settings
  CHECK(count_runs(folder) == 7);
}

TEST_CASE("sweep: a run that throws or is killed has failed by itself, and is run again") {
  const test::TemporaryFolder folder;
  CHECK(run<work>({"--sweep", "trouble=none,raise,kill", "lr=1,2"}, folder) == 1);
  CHECK(text_in(folder.file("runs/trouble=none,lr=2/result.toml")).size() > 0);
  CHECK_THAT(text_in(folder.file("runs/trouble=raise,lr=1/error.txt")), ContainsSubstring("no such luck"));
  CHECK_THAT(text_in(folder.file("runs/trouble=kill,lr=2/error.txt")), ContainsSubstring("SIGKILL"));
  CHECK_FALSE(fs::exists(folder.file("runs/trouble=kill,lr=2/result.toml")));
  CHECK(count_runs(folder) == 6);
  CHECK(run<work>({"--sweep", "trouble=none,raise,kill", "lr=1,2"}, folder) == 1);
  CHECK(count_runs(folder) == 10);
}

TEST_CASE("sweep: a run that calls exit(0) has failed, and is not run again and again") {
  const test::TemporaryFolder folder;
  CHECK(run<work>({"--sweep", "trouble=leave,none", "lr=1,2"}, folder) == 1);
  CHECK(count_runs(folder) == 4);
  CHECK_THAT(text_in(folder.file("runs/trouble=leave,lr=2/error.txt")), ContainsSubstring("code 0"));
}

TEST_CASE("sweep: runs whose processes die one after the other do not keep others from running") {
  const test::TemporaryFolder folder;
  CHECK(run<work>({"--sweep-processes=1", "--sweep", "trouble=kill,none", "lr=1,2,3,4,5"}, folder) == 1);
  for (const char* lr : {"1", "2", "3", "4", "5"}) {
    CHECK_THAT(text_in(folder.file(std::string("runs/trouble=kill,lr=") + lr + "/error.txt")),
               ContainsSubstring("SIGKILL"));
    CHECK(fs::exists(folder.file(std::string("runs/trouble=none,lr=") + lr + "/result.toml")));
  }
}

TEST_CASE("sweep: a run whose folder cannot be written has failed, and others run") {
  const test::TemporaryFolder folder;
  fs::create_directory(folder.file("runs"));
  std::ofstream(folder.file("runs/trouble=none,lr=1")) << "no folder";
  CHECK(run<work>({"--sweep", "trouble=none,no_folder", "lr=1,2"}, folder) == 1);
  CHECK(count_runs(folder) == 3);
  CHECK(fs::exists(folder.file("runs/trouble=none,lr=2/result.toml")));
  CHECK(run<work>({"--sweep", "trouble=none", "lr=2"}, folder) == 0);
  CHECK(count_runs(folder) == 3);
}

TEST_CASE("sweep: without --sweep there is one run, here") {
  const test::TemporaryFolder folder;
  CHECK(run<value_alone>({"lr=4"}, folder) == 0);
  CHECK_FALSE(fs::exists(folder.file("runs")));
  CHECK(run<value_alone>({"--sweep", "lr=4,5"}, folder) == 0);
  CHECK_THAT(text_in(folder.file("runs/lr=5/result.toml")), ContainsSubstring("[result]\nresult = 5.0\n"));
}

TEST_CASE("sweep: a folder that another sweep works in, or that cannot be made, is said, and nothing runs") {
  const test::TemporaryFolder folder;
  {
    const Fd taken = shoal::detail::take_sweep_folder(folder.file("runs"));
    CHECK(run<work>({"--sweep", "lr=1"}, folder) == 2);
  }
  fs::remove(folder.file("runs"));
  std::ofstream(folder.file("runs")) << "x";
  CHECK(run<work>({"--sweep", "lr=1"}, folder) == 2);
  CHECK(count_runs(folder) == 0);
}

TEST_CASE("sweep: what cannot be is said before anything runs") {
  const test::TemporaryFolder folder;
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--sweep"},
                                             {"--sweep", "lr"},
                                             {"--sweep", "lr=1,x"},
                                             {"--sweep", "ls=1"},
                                             {"--sweep", "lr=1", "lr=2"},
                                             {"--sweep", "sizes=[1"},
                                             {"--sweep-processes", "0", "--sweep", "lr=1"}})
    CHECK(run<work>(arguments, folder) == 2);
  CHECK(count_runs(folder) == 0);
  CHECK_FALSE(fs::exists(folder.file("runs")));
}
