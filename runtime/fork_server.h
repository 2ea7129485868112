// How to start the fork server before it is needed, and what it keeps ready.
#pragma once

#include <sys/types.h>

namespace shoal {

/// What the fork server keeps ready.
struct ForkServerOptions {
  /// How many children the server keeps forked in advance; it forks new ones while nobody asks for any. A start that
  /// finds one saves the fork, which takes milliseconds in a program with libtorch. Each spare costs the memory that a
  /// fork does: see docs/launching.md.
  int spares = 2;
  /// Whether the idle server may move its heap into pages that a fork does not copy, which makes forks several times as
  /// fast. It does so only if that is safe: it has no thread but its main one, the malloc is glibc's, and the heap has
  /// no transparent huge pages, which would be lost. See docs/process-decisions.md. A server that runs already keeps
  /// its setting.
  bool freeze_heap = true;
};

/// Starts the fork server now, in the background, instead of at the first start that uses it. If this process has or
/// inherited a server, that keeps `options.spares` spares from now on. Returns its pid. Throws std::invalid_argument if
/// `options.spares` is below 0 or above 256.
pid_t start_fork_server(const ForkServerOptions& options);
/// Starts the fork server with the default options; changes nothing if there is a server already.
pid_t start_fork_server();

}  // namespace shoal
