// What the disk has to be waited for: files, and the folders in which they got their names. fsync is this file's own.
#include <shoal/ipc/error.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <shoal/workers/checkpoint/export_state_dict.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/checkpoint/nets.h"

using namespace shoal;
using namespace shoal::test;
namespace fs = std::filesystem;

namespace {

/// While there is one, folders are noted, and fail with its error unless that is 0. One thread.
class WatchedSyncs {
 public:
  explicit WatchedSyncs(int error = 0) : error_(error) { the_one = this; }
  WatchedSyncs(const WatchedSyncs&) = delete;
  WatchedSyncs& operator=(const WatchedSyncs&) = delete;
  ~WatchedSyncs() { the_one = nullptr; }

  bool has(const fs::path& folder) const { return std::ranges::count(folders_, fs::canonical(folder)) > 0; }
  /// What fsync returns.
  int folder(int descriptor) {
    folders_.push_back(fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor)));
    errno = error_;
    return error_ == 0 ? 0 : -1;
  }

  static inline WatchedSyncs* the_one = nullptr;

 private:
  int error_;
  std::vector<fs::path> folders_;
};

}  // namespace

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's is a reserved one
extern "C" int fsync(int descriptor) {
  struct stat status{};
  if (WatchedSyncs::the_one && ::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode))
    return WatchedSyncs::the_one->folder(descriptor);
  return int(::syscall(SYS_fsync, descriptor));
}

TEST_CASE("checkpoint: a folder whose change the disk refuses is an error of the save, and of an export") {
  const TemporaryFolder folder;
  Plain plain;
  Checkpoints checkpoints({.folder = folder.path()});
  plain.set(1);
  torch::nn::Linear net(2, 2);
  for (const int error : {EIO, ENOSPC}) {
    const WatchedSyncs syncs(error);
    CHECK_THROWS_AS(checkpoints.save(1, plain.parts), SystemError);
    CHECK_THROWS_WITH(checkpoints.save(1, plain.parts), ContainsSubstring("writing the folder " + folder.path()));
    CHECK_THROWS_AS(export_state_dict(folder.file("net.pt"), net), SystemError);
    CHECK_THROWS_AS(Checkpoints({.folder = folder.file("inner")}), SystemError);
    CHECK(syncs.has(folder.path()));
  }
  for (const int error : {EINVAL, EROFS, 0}) {  // that there is nothing to wait for
    const WatchedSyncs syncs(error);
    checkpoints.save(2, plain.parts);
    CHECK(syncs.has(folder.path()));
  }
  CHECK(checkpoints.load(plain.parts) == 2);
}

TEST_CASE("checkpoint: the disk has all folders that were made for it, in those above") {
  for (const std::string ending : {"", "/", "/."}) {
    const TemporaryFolder folder;
    const WatchedSyncs syncs;
    const fs::path first = folder.file("a"), second = first / "b", third = second / "c";
    Checkpoints({.folder = third.native() + ending});
    CHECK(syncs.has(folder.path()));
    CHECK(syncs.has(first));
    CHECK(syncs.has(second));
    CHECK(fs::is_directory(third));
  }
}
