// Where the output of ranks is kept.
#pragma once

#include <shoal/ipc/fd.h>

#include <string>

namespace shoal::command {

/// As torchrun's: LOG_DIR/RUN_XXXXXX/attempt_N/LOCAL_RANK/stdout.log and stderr.log. Made when the first file is asked
/// for. Owned by the launcher. Throws SystemError if it cannot be made.
class LogFolder {
 public:
  /// `base` empty: a folder in /tmp.
  LogFolder(std::string base, std::string run_id) : base_(std::move(base)), run_id_(std::move(run_id)) {}

  struct File {
    Fd file;
    std::string path;
  };
  File open(int attempt, int local_rank, const char* name);
  const std::string& path() const { return path_; }

 private:
  std::string base_, run_id_, path_;
};

}  // namespace shoal::command
