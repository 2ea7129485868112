// Starting the fork server before it is needed, and what it keeps ready.
#pragma once

#include <sys/types.h>

namespace shoal {

/// What the fork server keeps ready.
struct ForkServerOptions {
  /// Children that the server keeps forked in advance, refilled while nobody asks for any. A start that finds
  /// one saves the fork, which takes milliseconds where libtorch is loaded. Each costs the memory that a fork does:
  /// see docs/launching.md.
  int spares = 2;
  /// Whether the server may move its heap into pages that a fork does not copy, while it is idle: that makes forks
  /// several times as fast. It does so only where it is safe: no thread but its main one, whoever made it; glibc's malloc; no
  /// transparent huge pages in the heap, which would be lost. See docs/process-decisions.md. Of a server that runs
  /// already nothing changes.
  bool freeze_heap = true;
};

/// Starts the fork server now rather than at the first start that uses it: it loads in the background. Where this
/// process has one already, or inherited one, that keeps as many spares from now on. Returns its pid. Throws
/// std::invalid_argument for a number of spares below 0 or above 256.
pid_t start_fork_server(const ForkServerOptions& options);
/// The same without a change where there is one already.
pid_t start_fork_server();

}  // namespace shoal
