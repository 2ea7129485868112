// CpuProfile: what libtorch does in a thread, as a file for Perfetto.
#pragma once

#include <string>

namespace shoal {

/// Records what the calling thread does, from construction until write(), with libtorch's own profiler (kineto):
/// operations of libtorch, those of their backward passes, and the ranges of RECORD_USER_SCOPE. The file is a Chrome
/// trace, which ui.perfetto.dev and chrome://tracing open. Other processes, loader workers among them, are not in it:
/// see `shoal trace`. A range's name must have no quotes: libtorch writes them as they are, and then the file is not
/// JSON.
///
/// Construct, write and destroy it in one thread. A process has one at a time: the second throws std::logic_error. The
/// file stays as it was until write(); if an exception comes before that, none is written.
class CpuProfile {
 public:
  /// Throws if the file cannot be written, before it begins anything: SystemError, which names the file, or
  /// std::invalid_argument if the path is something other than a regular file.
  explicit CpuProfile(std::string file);
  CpuProfile(const CpuProfile&) = delete;
  CpuProfile& operator=(const CpuProfile&) = delete;
  ~CpuProfile();

  /// Stops recording and writes the file. Throws Error, which names the file, if that fails.
  void write();

 private:
  const std::string file_;
  bool running_ = false;
};

}  // namespace shoal
