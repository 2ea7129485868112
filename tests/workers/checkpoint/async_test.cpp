// save_async(): what is written is what was there at the call, whoever dies.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/checkpoint/nets.h"

using namespace shoal;
using namespace shoal::test;
namespace fs = std::filesystem;

namespace {

using Steps = std::vector<std::int64_t>;

int unfinished_in(const std::string& folder) {
  return int(std::ranges::count_if(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    return entry.path().extension() == ".part";
  }));
}

}  // namespace

TEST_CASE("checkpoint: save_async writes what was there at the call, though all changes meanwhile") {
  const TemporaryFolder folder;
  Plain plain(3'000'001);
  Checkpoints checkpoints({.folder = folder.path(), .keep = 20, .saves_in_flight = 3});
  for (std::int64_t step = 0; step < 12; ++step) {
    plain.set(step);
    checkpoints.save_async(step, plain.parts);
    plain.set(200);
  }
  checkpoints.wait();
  CHECK(checkpoints.steps().size() == 12);
  for (std::int64_t step = 0; step < 12; ++step) {
    checkpoints.load_step(step, plain.parts);
    CHECK(plain.is(step));
  }
  CHECK(unfinished_in(folder.path()) == 0);
}

TEST_CASE("checkpoint: a shard that grows and shrinks gets the memory that it needs") {
  const TemporaryFolder folder;
  std::string text;
  CheckpointParts parts;
  parts.add("text", text);
  Checkpoints checkpoints({.folder = folder.path(), .keep = 20});
  const std::vector<std::size_t> sizes{10, 100'000, 5, 300'000, 300'000, 1};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    text.assign(sizes[i], char('a' + i));
    checkpoints.save_async(std::int64_t(i), parts);
  }
  checkpoints.wait();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    checkpoints.load_step(std::int64_t(i), parts);
    CHECK(text == std::string(sizes[i], char('a' + i)));
  }
}

TEST_CASE("checkpoint: the destructor waits for what is in flight") {
  const TemporaryFolder folder;
  Plain plain(1'000'000);
  plain.set(5);
  {
    Checkpoints checkpoints({.folder = folder.path()});
    checkpoints.save_async(5, plain.parts);
  }
  CHECK(Checkpoints({.folder = folder.path()}).load(plain.parts) == 5);
}

TEST_CASE("checkpoint: no more saves are in flight than allowed") {
  const TemporaryFolder folder;
  Plain plain;
  Checkpoints checkpoints({.folder = folder.path(), .keep = 9, .saves_in_flight = 2});
  plain.set(0);
  checkpoints.save_async(0, plain.parts);
  checkpoints.wait();
  REQUIRE(checkpoints.writer_pids().size() == 1);
  const int writer = checkpoints.writer_pids()[0];
  REQUIRE(::kill(writer, SIGSTOP) == 0);
  for (const std::int64_t step : {1, 2}) checkpoints.save_async(step, plain.parts);  // neither waits
  CHECK(checkpoints.steps() == Steps{0});
  ::kill(writer, SIGCONT);
  checkpoints.save_async(3, plain.parts);
  CHECK(std::ranges::count(checkpoints.steps(), 1) == 1);  // the third had to wait for the first
  checkpoints.wait();
  CHECK(checkpoints.steps() == Steps{0, 1, 2, 3});
}

TEST_CASE("checkpoint: a save that the killed writer had not begun is written by the next one") {
  const TemporaryFolder folder;
  Plain plain;
  Checkpoints checkpoints({.folder = folder.path()});
  plain.set(1);
  checkpoints.save_async(1, plain.parts);
  checkpoints.wait();
  const int writer = checkpoints.writer_pids()[0];
  REQUIRE(::kill(writer, SIGSTOP) == 0);
  plain.set(2);
  checkpoints.save_async(2, plain.parts);
  ::kill(writer, SIGKILL);
  checkpoints.wait();
  CHECK(checkpoints.load(plain.parts) == 2);
  CHECK(plain.is(2));
}

namespace {

/// A writer that was forked here dies at the label, and so does the one that replaces it. Each death is said by one call.
/// Returns how many there were.
int killed_writers(const std::string& folder, const std::string& label) {
  Plain plain;
  Checkpoints checkpoints({.folder = folder, .keep = 1, .start_method = StartMethod::fork});
  plain.set(1);
  checkpoints.save(1, plain.parts);
  kill_at(label.c_str());
  int failed = 0;
  for (const std::int64_t step : {2, 3}) {
    plain.set(step);
    checkpoints.save_async(step, plain.parts);
    try {
      checkpoints.wait();
    } catch (const CheckpointNotSaved& error) {
      if (error.step() != step || std::string(error.what()).find("SIGKILL") == std::string::npos)
        throw std::runtime_error(std::string("it said: ") + error.what());
      ++failed;
    }
    checkpoints.wait();
  }
  return failed;
}

}  // namespace

TEST_CASE("checkpoint: a writer killed at any point leaves whole checkpoints only") {
  for (const std::string label : {"checkpoint.begun", "checkpoint.piece", "checkpoint.written", "checkpoint.synced",
                                  "checkpoint.renamed", "checkpoint.remove"}) {
    INFO(label);
    const TemporaryFolder folder;
    Process<int> trainer({.name = "trainer", .num_threads = 1}, killed_writers, folder.path(), label);
    trainer.start();
    CHECK(trainer.result() == 2);
    const bool was_renamed = label == "checkpoint.renamed" || label == "checkpoint.remove";
    Plain plain;
    Checkpoints checkpoints({.folder = folder.path()});
    CHECK(checkpoints.load(plain.parts) == (was_renamed ? 3 : 1));
    CHECK(plain.is(was_renamed ? 3 : 1));
  }
}

TEST_CASE("checkpoint: a folder that is gone is an error of the next call") {
  const TemporaryFolder outer;
  Plain plain;
  Checkpoints checkpoints({.folder = outer.file("inner")});
  fs::remove(outer.file("inner"));
  checkpoints.save_async(1, plain.parts);
  CHECK_THROWS_AS(checkpoints.save(2, plain.parts), CheckpointNotSaved);
  CHECK_THROWS_AS(checkpoints.save(2, plain.parts), SystemError);
}
