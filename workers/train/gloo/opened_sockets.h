// The TCP connections that a library opens, found from outside.
#pragma once

#include <shoal/ipc/fd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// One side of a connection by TCP.
struct SocketAddress {
  std::string address;  ///< as numbers; empty: no connection by TCP
  int port = 0;
};

/// Gloo and c10d's store keep their descriptors to themselves, and neither can be made to give up a call. So whoever
/// makes one of them notes the process's descriptors before, and looks afterwards which TCP connections have come. Each
/// is duplicated: the library may close its number, which another file gets then, while the duplicate stays this
/// connection. shut_down() ends it for both sides, whoever has it open, and wakes whoever waits for it.
///
/// Forked children give up their copies, as those of OwnSocket and of what this process serves, and programs that are
/// started get none: otherwise a connection would outlive its process. That is for what was found, not while it is made.
///
/// A connection that another thread makes at the same time to one of the same addresses is taken for one of them. Owned
/// by one thread; shut_down() may be called by any.
class OpenedSockets {
 public:
  struct Socket {
    Fd descriptor;        ///< a duplicate
    std::string address;  ///< of the other side, as numbers
    int library = -1;     ///< the library's own descriptor
  };

  /// Notes what is open now.
  OpenedSockets();
  OpenedSockets(const OpenedSockets&) = delete;
  ~OpenedSockets() { forget(); }
  /// Finds what has come since with another side of this port.
  void find(int port);
  /// Finds what has come since with another side of one of these addresses, but nothing of this port on either side: rank
  /// 0's store takes connections from the same hosts at the same time.
  void find(const std::set<std::string>& addresses, int not_of_port);

  const std::vector<Socket>& sockets() const { return sockets_; }
  /// Lets the kernel ask whether the other side still answers, so that a connection whose link is lost ends with an
  /// error within this time, also while nothing is sent.
  void keep_alive(std::chrono::milliseconds at_most) const;
  /// Whether the library has closed its own descriptor of the connection, so that it will read nothing more.
  static bool is_released(const Socket& socket) noexcept;
  /// Whether one of them has ended. It asks the kernel, and nothing is sent.
  bool has_ended() const noexcept;
  /// Ends all connections.
  void shut_down() const noexcept;
  /// Closes the duplicates; the connections stay as they are.
  void forget();
  /// The other sides of all connections at this port of this process, as numbers.
  static std::vector<SocketAddress> others_at(int port);
  /// Says that a library takes connections at this port of this process, now and until its end: forked children give up
  /// these, too.
  static void serves(int port);

 private:
  template <class Accept>
  void find_if(Accept accept);

  std::map<int, std::pair<std::uint64_t, std::uint64_t>> before_;  // number, device and inode
  std::vector<Socket> sockets_;
};

/// A connection of shoal's own, which no OpenedSockets takes for a library's: it is open and known as such, or neither, for
/// whoever looks.
class OwnSocket {
 public:
  OwnSocket() = default;
  /// Calls `open`, which returns a descriptor or nothing.
  explicit OwnSocket(const std::function<Fd()>& open);
  OwnSocket(OwnSocket&&) noexcept = default;
  OwnSocket& operator=(OwnSocket&& other) noexcept;
  ~OwnSocket() { close(); }

  int get() const noexcept { return descriptor_.get(); }
  explicit operator bool() const noexcept { return bool(descriptor_); }
  void close() noexcept;

 private:
  Fd descriptor_;
};

/// Lets the kernel ask whether the other side of a connection still answers: it ends with an error within this time. Also if
/// the other side lives and reads nothing of what was sent for so long.
void keep_alive(int number, std::chrono::milliseconds at_most);
/// The same while nothing is under way, and no more: for a connection whose other side may read late.
void ask_whether_alive(int number, std::chrono::milliseconds at_most);

SocketAddress own_side(int descriptor);
SocketAddress other_side(int descriptor);

/// Gloo writes to connections whose other side may have died: that must not kill this process. Does nothing if the program
/// handles the signal by itself.
void ignore_broken_pipes();

}  // namespace shoal
