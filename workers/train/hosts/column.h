// What one rank has to the ranks of its column: a rank on each other host.
#pragma once

#include <shoal/internal/workers/train/gloo/gloo_group.h>
#include <shoal/internal/workers/train/hosts/note_lines.h>

namespace shoal {

/// Gloo for the data, lines for notes and what goes with them. Made and used by one thread; abort() and lose() may be
/// called by any.
struct Column {
  /// As GlooGroup.
  Column(c10d::Store& store, int store_port, int index, const std::vector<std::string>& addresses, Deadline deadline,
         std::chrono::milliseconds link_timeout, const GlooGroup::Look& look)
      : gloo(store, store_port, index, addresses, deadline, link_timeout, look),
        lines(store, index, addresses, deadline, link_timeout) {}

  /// Ends all connections, and all waits, now or later.
  void abort() noexcept {
    lines.abort();
    gloo.abort();
  }
  /// Ends the waits for one rank, whose connection Gloo has given up.
  void lose(int peer) {
    gloo.lose(peer);
    lines.lose(peer);
  }

  GlooGroup gloo;
  NoteLines lines;
};

}  // namespace shoal
