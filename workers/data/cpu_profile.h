// CpuProfile: what libtorch does in a thread, as a file for Perfetto.
#pragma once

#include <string>

namespace shoal {

/// Records the operations of libtorch that the calling thread runs, those of their backward passes, and the ranges of
/// RECORD_USER_SCOPE, from its construction until write(), with libtorch's own profiler (kineto). The file is a Chrome
/// trace: ui.perfetto.dev and chrome://tracing open it. What other processes do, loader workers among them, is not in
/// it: see `shoal trace` for that. A range's name must have no quotes: libtorch writes them as they are, and the file
/// is no JSON then.
///
/// Constructed, written and destroyed in one thread. One at a time in a process: std::logic_error for a second. Until
/// it is written the file stays as it was; an exception on the way leaves none.
class CpuProfile {
 public:
  /// Throws where the file cannot be written, and then nothing was begun: SystemError that names it,
  /// std::invalid_argument for what is there and no regular file.
  explicit CpuProfile(std::string file);
  CpuProfile(const CpuProfile&) = delete;
  CpuProfile& operator=(const CpuProfile&) = delete;
  ~CpuProfile();

  /// Stops and writes the file. Throws Error that names it where that fails.
  void write();

 private:
  const std::string file_;
  bool running_ = false;
};

}  // namespace shoal
