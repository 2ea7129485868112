// Checkpoints in their folder: processes that are killed while they write, full disks, damage, and how many stay.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/workers/checkpoint/folder/shard_name.h>
#include <shoal/ipc/error.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/said.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/checkpoint/nets.h"

using namespace shoal;
using namespace shoal::test;
namespace fs = std::filesystem;

namespace {

using Steps = std::vector<std::int64_t>;

std::size_t files_in(const std::string& folder) {
  return std::size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void flip(const fs::path& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(std::streamoff(at));
  const char byte = char(file.get());
  file.seekp(std::streamoff(at));
  file.put(char(byte ^ 4));
}

fs::path shard(const std::string& folder, std::int64_t step, int rank = 0, int ranks = 1) {
  return fs::path(folder) / shoal::detail::shard_file_name({step, rank, ranks});
}

/// The highest step that loads, whole.
std::optional<std::int64_t> loaded(const std::string& folder) {
  Plain plain;
  Checkpoints checkpoints({.folder = folder});
  const auto step = checkpoints.load(plain.parts);
  if (step) CHECK(plain.is(*step));
  return step;
}

}  // namespace

TEST_CASE("checkpoint: a process killed at any point of a save leaves the step before it, or the whole new one") {
  struct Point {
    const char* label;
    int skip;
    std::int64_t then;
  };
  // The removal of step 1 comes with step 3: two are kept.
  for (const Point& point :
       {Point{"checkpoint.begun", 0, 2}, Point{"checkpoint.piece", 0, 2}, Point{"checkpoint.piece", 1, 2},
        Point{"checkpoint.written", 0, 2}, Point{"checkpoint.synced", 0, 2}, Point{"checkpoint.renamed", 0, 3},
        Point{"checkpoint.remove", 0, 3}}) {
    INFO(point.label << " " << point.skip);
    const TemporaryFolder folder;
    Forked writer([&] {
      Plain plain;
      Checkpoints checkpoints({.folder = folder.path(), .keep = 2});
      for (const std::int64_t step : {1, 2, 3}) {
        plain.set(step);
        if (step == 3) kill_at(point.label, point.skip);
        checkpoints.save(step, plain.parts);
      }
    });
    CHECK(writer.join() == -SIGKILL);
    CHECK(loaded(folder.path()) == point.then);
    // Whoever comes next goes on, and its saves take away what was left.
    Plain plain;
    Checkpoints checkpoints({.folder = folder.path(), .keep = 2});
    CHECK(checkpoints.steps().back() == point.then);  // a half one never has a shard's name
    for (const std::int64_t step : {4, 5}) {
      plain.set(step);
      checkpoints.save(step, plain.parts);
    }
    CHECK(checkpoints.steps() == Steps{4, 5});
    CHECK(files_in(folder.path()) == 2);
  }
}

TEST_CASE("checkpoint: where the file system refuses more bytes save() says so, and what was there stays") {
  const TemporaryFolder folder;
  Forked writer([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    Plain plain;
    Checkpoints checkpoints({.folder = folder.path()});
    plain.set(1);
    checkpoints.save(1, plain.parts);
    // The first byte, within the data, and all but the last one.
    const auto whole = fs::file_size(shard(folder.path(), 1));
    for (const std::uintmax_t most : {std::uintmax_t(0), whole / 2, whole - 1}) {
      rlimit limit{rlim_t(most), RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      plain.set(2);
      std::string said;
      try {
        checkpoints.save(2, plain.parts);
      } catch (const SystemError& error) {
        said = error.what();
        if (error.error_number() != EFBIG) throw;
      }
      if (said.find("step-000000000002") == std::string::npos) throw std::runtime_error("it said: " + said);
      if (files_in(folder.path()) != 1) throw std::runtime_error("something is left");
    }
    rlimit none{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &none);
    checkpoints.save(2, plain.parts);
  });
  CHECK(writer.join() == 0);
  CHECK(loaded(folder.path()) == 2);
}

TEST_CASE("checkpoint: damaged and cut files are passed over, and the newest whole one is loaded") {
  const TemporaryFolder folder;
  Plain plain;
  {
    Checkpoints checkpoints({.folder = folder.path(), .keep = 10});
    for (const std::int64_t step : {10, 20, 30, 40}) {
      plain.set(step);
      checkpoints.save(step, plain.parts);
    }
  }
  CHECK(loaded(folder.path()) == 40);
  flip(shard(folder.path(), 40), 10'000);
  CHECK(loaded(folder.path()) == 30);
  fs::resize_file(shard(folder.path(), 30), 1000);
  CHECK(loaded(folder.path()) == 20);
  fs::rename(shard(folder.path(), 40), shard(folder.path(), 50));
  fs::copy_file(shard(folder.path(), 10), shard(folder.path(), 60));  // whole, but another step's
  std::ofstream(folder.file("step-000000000070.rank-0-of-1.checkpoint"));
  std::ofstream(folder.file("notes.txt"));
  CHECK(loaded(folder.path()) == 20);
  Checkpoints checkpoints({.folder = folder.path()});
  CHECK_THROWS_AS(checkpoints.load_step(30, plain.parts), CheckpointError);
  CHECK_THROWS_WITH(checkpoints.load_step(35, plain.parts),
                    ContainsSubstring("no checkpoint of it; there are those of 10, 20, 30, 50, 60, 70"));
  checkpoints.load_step(10, plain.parts);
  CHECK(plain.is(10));
  flip(shard(folder.path(), 20), 200);
  flip(shard(folder.path(), 10), 20);
  CHECK_FALSE(loaded(folder.path()));
  const TemporaryFolder empty;
  CHECK_FALSE(loaded(empty.path()));
}

TEST_CASE("checkpoint: the last k stay") {
  const TemporaryFolder folder;
  Plain plain;
  for (const int keep : {3, 1}) {
    Checkpoints checkpoints({.folder = folder.path(), .keep = keep});
    for (std::int64_t step = 10; step < 16; ++step) {
      plain.set(step);
      checkpoints.save(step, plain.parts);
    }
    const Steps expected = keep == 3 ? Steps{13, 14, 15} : Steps{15};
    CHECK(checkpoints.steps() == expected);
  }
  CHECK(files_in(folder.path()) == 1);
  Checkpoints checkpoints({.folder = folder.path()});
  plain.set(15);
  plain.count = 99;
  checkpoints.save(15, plain.parts);  // once more: it takes the other's place
  CHECK(checkpoints.load(plain.parts) == 15);
  CHECK(plain.count == 99);
  CHECK_THROWS_AS(checkpoints.save(-1, plain.parts), std::invalid_argument);
  CHECK_THROWS_AS(Checkpoints({.folder = ""}), std::invalid_argument);
  CHECK_THROWS_AS(Checkpoints({.folder = folder.path(), .rank = 2, .ranks = 2}), std::invalid_argument);
  CHECK_THROWS_AS(Checkpoints({.folder = folder.path(), .keep = 0}), std::invalid_argument);
  CHECK_THROWS_WITH(Checkpoints({.folder = folder.path(), .ranks = 1 << 21, .run_id = "x"}),
                    ContainsSubstring("rank 0 of 2097152") && ContainsSubstring("1 to 1048576 ranks"));
}

TEST_CASE("checkpoint: what is no file under a shard's name keeps nobody waiting, and the log names it") {
  const TemporaryFolder folder;
  Plain plain;
  Checkpoints checkpoints({.folder = folder.path(), .keep = 2});
  for (const std::int64_t step : {10, 20}) {
    plain.set(step);
    checkpoints.save(step, plain.parts);
  }
  REQUIRE(::mkfifo(shard(folder.path(), 22).c_str(), 0666) == 0);
  REQUIRE(::mkfifo(shard(folder.path(), 30).c_str(), 0666) == 0);
  const std::string said = said_by([&] {
    if (Checkpoints({.folder = folder.path()}).load(plain.parts) != 20)
      throw std::runtime_error("another step was loaded");
  });
  CHECK_THAT(said, ContainsSubstring("step-000000000030.rank-0-of-1.checkpoint: file: it is a FIFO under a shard's"));
  plain.set(25);
  checkpoints.save(25, plain.parts);  // which counts the steps that are there
  CHECK(loaded(folder.path()) == 25);
  plain.set(30);
  checkpoints.save(30, plain.parts);  // takes its place
  CHECK(loaded(folder.path()) == 30);
}

TEST_CASE("checkpoint: the log names in one line what was saved and is not asked for") {
  const TemporaryFolder folder;
  Plain plain;
  Checkpoints({.folder = folder.path()}).save(10, plain.parts);
  const auto load = [&](const CheckpointParts& parts) {
    return said_by([&] { (void)Checkpoints({.folder = folder.path()}).load(parts); });
  };
  CheckpointParts less;
  const std::string all = load(plain.parts);
  CHECK(times_in(all, "loaded without") == 0);
  less.add("count", plain.count);
  const std::string some = load(less);
  CHECK(times_in(some, "the checkpoint of step 10 in " + folder.path() + " was loaded without its part 'bytes'") == 1);
  const std::string none = load(CheckpointParts());
  CHECK(times_in(none, "without its parts 'bytes', 'count', which this program did not add") == 1);
}

TEST_CASE("checkpoint: a step counts once all ranks' shards are there, of one run") {
  const TemporaryFolder folder;
  const auto save = [&](int rank, const char* run, std::int64_t step) {
    Plain plain;
    plain.set(step);
    Checkpoints({.folder = folder.path(), .rank = rank, .ranks = 2, .keep = 2, .run_id = run}).save(step, plain.parts);
  };
  const auto newest = [&] {
    Plain plain;
    return Checkpoints({.folder = folder.path(), .rank = 1, .ranks = 2}).load(plain.parts);
  };
  save(0, "first", 1);
  CHECK_FALSE(newest());
  save(1, "first", 1);
  CHECK(newest() == 1);
  save(0, "first", 2);  // and then its run ends
  CHECK(newest() == 1);
  save(1, "second", 2);  // the next one begins with step 1, and comes as far
  CHECK(newest() == 1);
  save(0, "second", 2);
  CHECK(newest() == 2);
  // Rank 0 is ahead: what is kept are whole steps.
  save(0, "second", 3);
  save(0, "second", 4);
  CHECK(newest() == 2);
  CHECK(fs::exists(shard(folder.path(), 1, 0, 2)));
  save(1, "second", 3);
  CHECK(newest() == 3);
  CHECK_FALSE(fs::exists(shard(folder.path(), 1, 0, 2)));
}

TEST_CASE("checkpoint: a step of more ranks than a process can open files is loaded, by any of its ranks") {
  constexpr int kRanks = 200;
  const TemporaryFolder folder;
  std::int64_t own = 0;
  at::Tensor equal = torch::full({10}, 7);
  CheckpointParts parts;
  parts.add("own", own);
  parts.add("equal", equal);
  const auto rank_of_many = [&](int rank) {
    return Checkpoints({.folder = folder.path(), .rank = rank, .ranks = kRanks, .run_id = "many"});
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    own = rank;
    rank_of_many(rank).save(1, parts);
  }
  Forked reader([&] {
    const rlimit limit{kRanks - 50, kRanks - 50};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("no limit");
    for (const int rank : {0, kRanks - 1}) {
      own = -1;
      equal.zero_();
      if (rank_of_many(rank).load(parts) != 1 || own != rank || !equal.eq(7).all().item<bool>())
        throw std::runtime_error("other values were loaded");
    }
  });
  CHECK(reader.join() == 0);
}

namespace {

void save_all(Checkpoints& checkpoints, const Steps& steps) {
  Plain plain;
  for (const std::int64_t step : steps) {
    plain.set(step);
    checkpoints.save(step, plain.parts);
  }
}

/// One of two ranks that have no process group.
Checkpoints rank_of(const std::string& folder, int rank, const char* run, int keep = 3) {
  return Checkpoints({.folder = folder, .rank = rank, .ranks = 2, .keep = keep, .run_id = run});
}

}  // namespace

TEST_CASE("checkpoint: a training that goes back keeps what it saves then, and its abandoned future goes") {
  for (const int keep : {1, 2, 3}) {
    INFO("keep " << keep);
    const TemporaryFolder folder;
    Checkpoints first({.folder = folder.path(), .keep = 3});
    save_all(first, {20, 30, 40});
    std::ofstream(shard(folder.path(), 50).native() + ".1.0.part");
    Plain plain;
    Checkpoints checkpoints({.folder = folder.path(), .keep = keep});
    checkpoints.load_step(20, plain.parts);
    CHECK(checkpoints.steps() == Steps{20, 30, 40});  // who only looks removes nothing
    save_all(checkpoints, {21});
    CHECK(checkpoints.steps() == (keep == 1 ? Steps{21} : Steps{20, 21}));
    CHECK(files_in(folder.path()) == checkpoints.steps().size());
    CHECK(loaded(folder.path()) == 21);
    save_all(checkpoints, {30});
    CHECK(loaded(folder.path()) == 30);
  }
}

TEST_CASE("checkpoint: steps above the saved one neither count nor go if nothing was loaded") {
  const TemporaryFolder folder;
  Checkpoints first({.folder = folder.path()});
  save_all(first, {20, 30, 40});
  for (const int keep : {2, 1}) {
    Checkpoints another({.folder = folder.path(), .keep = keep});
    save_all(another, {21});
    CHECK(another.steps() == (keep == 2 ? Steps{20, 21, 30, 40} : Steps{21, 30, 40}));
  }
  CHECK(loaded(folder.path()) == 40);
}

TEST_CASE("checkpoint: damaged steps that load() has passed over go with the first save") {
  const TemporaryFolder folder;
  Checkpoints first({.folder = folder.path()});
  save_all(first, {20, 30, 40});
  flip(shard(folder.path(), 30), 30);  // of the header, and of the data
  flip(shard(folder.path(), 40), 10'000);
  Plain plain;
  Checkpoints checkpoints({.folder = folder.path(), .keep = 1});
  CHECK(checkpoints.load(plain.parts) == 20);
  save_all(checkpoints, {25});
  CHECK(checkpoints.steps() == Steps{25});
  CHECK(loaded(folder.path()) == 25);
}

TEST_CASE("checkpoint: ranks that go back one after the other take away their own shards, and lose no step") {
  const TemporaryFolder folder;
  const auto newest = [&] {
    Plain plain;
    return rank_of(folder.path(), 0, "reader").load(plain.parts);
  };
  for (const int rank : {0, 1}) {
    Checkpoints checkpoints = rank_of(folder.path(), rank, "first");
    save_all(checkpoints, {20, 30, 40});
  }
  Plain plain;
  Checkpoints zero = rank_of(folder.path(), 0, "second", 1), one = rank_of(folder.path(), 1, "second", 1);
  zero.load_step(20, plain.parts);
  one.load_step(20, plain.parts);
  save_all(zero, {21});
  CHECK(newest() == 20);
  save_all(zero, {30});  // beside the other rank's of the first run
  CHECK(fs::exists(shard(folder.path(), 30, 1, 2)));
  CHECK(newest() == 20);
  save_all(one, {21});
  CHECK(newest() == 21);
  CHECK(fs::exists(shard(folder.path(), 30, 0, 2)));  // the faster rank's
  CHECK(zero.steps() == Steps{21});
  save_all(one, {30});
  CHECK(newest() == 30);
  CHECK(files_in(folder.path()) == 2);
}

TEST_CASE("checkpoint: a future that another number of ranks wrote goes as well, also of the very step") {
  const TemporaryFolder folder;
  Checkpoints alone({.folder = folder.path()});
  save_all(alone, {20, 30, 40});
  Plain plain;
  Checkpoints zero = rank_of(folder.path(), 0, "two"), one = rank_of(folder.path(), 1, "two");
  zero.load_step(20, plain.parts);
  one.load_step(20, plain.parts);
  save_all(zero, {30});
  CHECK(loaded(folder.path()) == 20);
  save_all(one, {30});
  CHECK(loaded(folder.path()) == 30);
  CHECK(files_in(folder.path()) == 3);
}

TEST_CASE("checkpoint: a process that goes back to the step before its last mixes no shards of the last") {
  const TemporaryFolder folder;
  Checkpoints zero = rank_of(folder.path(), 0, "same"), one = rank_of(folder.path(), 1, "same");
  for (Checkpoints* rank : {&zero, &one}) save_all(*rank, {20, 30});
  Plain plain;
  for (Checkpoints* rank : {&zero, &one}) rank->load_step(20, plain.parts);
  save_all(zero, {30});  // and is killed before the other rank has
  CHECK(zero.load(plain.parts) == 20);
  save_all(one, {30});
  CHECK(one.load(plain.parts) == 30);
}

TEST_CASE("checkpoint: a process that goes back mixes no shards of both times") {
  const TemporaryFolder folder;
  Checkpoints zero = rank_of(folder.path(), 0, "same"), one = rank_of(folder.path(), 1, "same");
  for (Checkpoints* rank : {&zero, &one}) save_all(*rank, {20, 30, 40});
  Plain plain;
  for (Checkpoints* rank : {&zero, &one}) rank->load_step(20, plain.parts);
  save_all(zero, {30});
  CHECK(zero.load(plain.parts) == 20);
  save_all(one, {30});
  CHECK(one.load(plain.parts) == 30);
  CHECK(one.steps() == Steps{20, 30});
}
