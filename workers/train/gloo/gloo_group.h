// Messages between the ranks of several hosts, by the Gloo that is in libtorch.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/train/gloo/opened_sockets.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace shoal {

/// What Gloo said when a message could not be sent or received.
class GlooFailure : public std::runtime_error {
 public:
  enum Why {
    late,         ///< nothing came in time
    unreachable,  ///< the other side's host does not answer
    ended         ///< the other side, or this one, has ended the connection
  };
  GlooFailure(int peer, Why why, const std::string& text) : std::runtime_error(text), peer_(peer), why_(why) {}
  int peer() const { return peer_; }  ///< number in the group; -1: not known
  Why why() const { return why_; }

 private:
  int peer_;
  Why why_;
};

/// Connections to the others of a group, one each, by c10d's ProcessGroupGloo; of its calls only send and recv are
/// used, so what is summed in which order is decided here, and one wire carries every type.
///
/// libtorch's wheels have Gloo, but not its headers. ProcessGroupGloo.hpp refers to five of them, and by pointers
/// alone; `declarations/` has those five, with what has to be declared. So nothing here knows how Gloo's objects lie in
/// memory, and Debian's libgloo-dev, which is another version, is not used.
///
/// Messages are matched by tag: of one tag, sender and receiver give the same number of bytes. Otherwise Gloo ends the
/// process. Owned by one thread, which uses it; abort() and lose() may be called by any. SIGPIPE is ignored in a process
/// that has made one. After a failure nothing but abort(), settle() and destruction is of use.
///
/// When a connection ends, Gloo ends the waits for messages that have not begun. It forgets the one that it is in the
/// middle of reading or writing, which would be waited for until its time-out. So whoever sees the end calls abort() or
/// lose(), and these end the waits themselves, by c10d::Work::abort().
class GlooGroup {
 public:
  /// A message under way. What it reads or writes has to stay until wait() has returned, or the group was aborted and
  /// this is gone.
  struct Pending {
    std::shared_ptr<void> work;
    int peer = -1;
  };

  /// Looks for a reason not to connect, which it throws; returns when it wants to be asked again.
  using Look = std::function<std::chrono::milliseconds()>;

  /// Connects with all others; they meet in the store. `addresses`: of all, by number, as the others reach them. A
  /// connection ends where the other side has not answered for `link_timeout`. Throws GlooFailure, std::system_error, and
  /// what `look` throws. `store_port`: of the store, whose connections are not this group's.
  ///
  /// Gloo opens all connections in one call, which waits for a rank that has died until the deadline and cannot be ended.
  /// So a thread makes it, and when `look` throws that is left alone with it: it uses the store until then.
  GlooGroup(c10d::Store& store, int store_port, int index, const std::vector<std::string>& addresses, Deadline deadline,
            std::chrono::milliseconds link_timeout, const Look& look = {});
  GlooGroup(const GlooGroup&) = delete;
  ~GlooGroup();

  int size() const { return size_; }
  Pending send(int peer, const void* data, std::size_t bytes, std::uint32_t tag);
  Pending receive(int peer, void* data, std::size_t bytes, std::uint32_t tag);
  void wait(const Pending& pending, Deadline deadline);

  /// Ends all connections: whoever waits, now or later, here or on the other side, gets GlooFailure.
  void abort() noexcept;
  /// Says that Gloo has given up the connection with this one (OpenedSockets::is_released()): what has not come by now
  /// never comes, so whoever waits for it, now or later, gets GlooFailure. What has come can still be waited for.
  void lose(int peer);
  /// After abort(): waits, for a moment, until Gloo has given up all connections. Until then its thread may be in a message,
  /// and if that were gone it would ask for the rest without end.
  void settle() const;
  const OpenedSockets& sockets() const { return sockets_; }

 private:
  struct Engine;
  class Waiting;
  int size_;
  OpenedSockets sockets_;
  std::mutex mutex_;                      // of these:
  std::list<const Pending*> waited_for_;  // now, by any thread
  std::vector<bool> lost_;                // by number
  bool aborted_ = false;
  std::unique_ptr<Engine> engine_;
};

}  // namespace shoal
