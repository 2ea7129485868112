// Descriptors that become readable when a connection has something to receive. Not for users.
#pragma once

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/fork/one_per_process.h>
#include <shoal/internal/ipc/pipe/core.h>

#include <memory>
#include <vector>

namespace shoal {

/// One thread of this process that sleeps on the rings of all connections whose descriptor was asked for,
/// and writes to their eventfds. The sending process knows nothing of it and pays nothing for it. There
/// is one a process, never destroyed; a forked child makes its own. A fork waits for its mutex: what the thread holds of
/// a connection while it looks would keep the child's copy open for ever. Threads: any.
class ReadinessWatch {
 public:
  using Core = AnyConnection::Core;

  static ReadinessWatch& current();
  /// The connection's descriptor; makes it at the first call.
  int descriptor(const std::shared_ptr<Core>& core);
  /// Something was received from a watched connection, or it was closed. Nothing to do if this process watches none:
  /// the connection's descriptor is its parent's.
  static void look_again(Core& core);

 private:
  friend class OnePerProcess<ReadinessWatch>;
  ReadinessWatch();
  void serve();
  void pass_on();
  void update(Core& core);

  // Under the mutex of readiness.cpp.
  std::vector<std::weak_ptr<Core>> watched_;  // weak: a connection that is let go must close at once
  EventWord changed_;                         // something was added, or has to be looked at again
};

}  // namespace shoal
