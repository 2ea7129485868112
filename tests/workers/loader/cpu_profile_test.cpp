// CpuProfile, and the one of a data loader's profile: files that a viewer of Chrome traces can read.
#include <shoal/workers/data/cpu_profile.h>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <shoal/ipc/error.h>
#include <shoal/workers/data/data_loader.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/loader/loader_fixtures.h"

using shoal::CpuProfile;

namespace {

/// How often each name is a complete event in a trace; what is no JSON throws.
std::map<std::string, int> events_in(const std::string& file) {
  std::ifstream text(file);
  const auto trace = nlohmann::json::parse(text);
  std::map<std::string, int> events;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("dur").is_number() && event.at("ts").is_number())
      ++events[event.at("name").get<std::string>()];
  return events;
}

void some_work() {
  RECORD_USER_SCOPE("some work");
  const at::Tensor matrix = at::ones({8, 8});
  (void)at::addmm(matrix, matrix, matrix);
}

}  // namespace

TEST_CASE("CpuProfile: the file has the operations and ranges between its beginning and its end, and no others") {
  const shoal::test::TemporaryFolder folder;
  const std::string file = folder.file("trace.json");
  (void)at::ones({2}).cumsum(0);
  CpuProfile profile(file);
  some_work();
  profile.write();
  (void)at::ones({2}).cumsum(0);
  auto events = events_in(file);
  CHECK(events["aten::addmm"] == 1);
  CHECK(events["some work"] == 1);
  CHECK(events.count("aten::cumsum") == 0);
  CHECK_THROWS_AS(profile.write(), std::logic_error);
}

TEST_CASE("CpuProfile: one after the other can be made, two at a time not") {
  const shoal::test::TemporaryFolder folder;
  for (const char* name : {"first.json", "second.json"}) {
    CpuProfile profile(folder.file(name));
    CHECK_THROWS_AS(CpuProfile(folder.file("other.json")), std::logic_error);
    some_work();
    profile.write();
    CHECK(events_in(folder.file(name))["aten::addmm"] == 1);
  }
  CHECK_FALSE(std::filesystem::exists(folder.file("other.json")));
}

TEST_CASE("CpuProfile: one that is not written leaves no file, and one that was there as it was") {
  const shoal::test::TemporaryFolder folder;
  const auto file = folder.file("trace.json");
  {
    const CpuProfile profile(file);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  std::ofstream(file) << "mine";
  {
    const CpuProfile profile(file);
  }
  CHECK(std::filesystem::file_size(file) == 4);
  CpuProfile profile(file);
  some_work();
  profile.write();
  CHECK(events_in(file)["aten::addmm"] == 1);
}

TEST_CASE("CpuProfile: a file that cannot be written is named before anything is recorded") {
  const shoal::test::TemporaryFolder folder;
  CHECK_THROWS_WITH(CpuProfile(folder.file("no folder/trace.json")), ContainsSubstring("no folder/trace.json"));
  CHECK_THROWS_AS(CpuProfile(folder.file("no folder/trace.json")), shoal::SystemError);
  CHECK_THROWS_AS(CpuProfile(folder.path()), std::invalid_argument);
  CHECK_THROWS_WITH(CpuProfile("/dev/null"), ContainsSubstring("/dev/null"));  // it would be replaced
  const auto file = folder.file("trace.json");
  CpuProfile profile(file);  // the one that failed is not in the way
  profile.write();
  std::filesystem::create_directory(folder.file("gone"));
  const auto lost = folder.file("gone/trace.json");
  CpuProfile late(lost);
  std::filesystem::remove_all(folder.file("gone"));
  CHECK_THROWS_WITH(late.write(), ContainsSubstring(lost));
}

TEST_CASE("DataLoader: a profile with a trace says in it when the loop waited, worked, and on which operations") {
  const int workers = GENERATE(0, 2);
  const shoal::test::TemporaryFolder folder;
  const std::string file = folder.file("trace.json");
  DataLoader loader({.batch_size = 4, .num_workers = workers}, Numbers{40});
  const auto step = [](at::Tensor& batch) {
    const at::Tensor floats = batch.to(at::kFloat);
    (void)at::addmm(at::zeros({4, 4}), floats, floats.t());
  };
  CHECK(loader.profile(5, step, {.trace = file}).batches == 5);
  auto events = events_in(file);
  CHECK(events["wait for batch"] == 5);
  CHECK(events["step"] == 5);
  CHECK(events["aten::addmm"] == 5);
  CHECK(events["make batch"] == (workers == 0 ? 5 : 0));
  CHECK(loader.profile(5, {.trace = file}).batches == 5);
  events = events_in(file);
  CHECK(events["aten::addmm"] == 0);
}

TEST_CASE(
    "DataLoader: a trace that cannot be written is refused before the first batch, a step that throws leaves none") {
  const shoal::test::TemporaryFolder folder;
  DataLoader loader({.batch_size = 4}, Numbers{40});
  int steps = 0;
  const std::string nowhere = folder.file("no folder/trace.json");
  CHECK_THROWS_WITH(loader.profile(5, [&](at::Tensor&) { ++steps; }, {.trace = nowhere}), ContainsSubstring(nowhere));
  CHECK(steps == 0);
  const std::string file = folder.file("trace.json");
  CHECK_THROWS_AS(loader.profile(5, [](at::Tensor&) { throw std::runtime_error("step"); }, {.trace = file}),
                  std::runtime_error);
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(loader.profile(5, {.trace = file}).batches == 5);
}
