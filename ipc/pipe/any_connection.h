// One end of a pipe, whatever the type of its messages.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/ipc/error.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace shoal {

/// The other end of the pipe is gone, and this end has received all that it sent.
class EndOfFile : public Error {
 public:
  using Error::Error;
};

/// The other end of the pipe is gone: nobody would receive the message.
class BrokenPipe : public Error {
 public:
  using Error::Error;
};

/// How much fits into a pipe, and which way.
struct PipeOptions {
  bool duplex = true;             ///< false: `first` only receives, `second` only sends
  std::size_t capacity = 64;      ///< messages in each direction, 1 to 16,777,215
  std::size_t byte_capacity = 0;  ///< bytes in each direction, as in QueueOptions; 0: no limit
  std::string name = {};          ///< as in QueueOptions
};

/// The part of Connection<T> that does not depend on T.
class AnyConnection {
 public:
  bool readable() const;  ///< whether this end can receive at all
  bool writable() const;  ///< whether this end can send at all

  /// Waits until recv() would not wait: there is a message, or the end of file. Returns false after `timeout`.
  bool poll(std::chrono::nanoseconds timeout = {}) const { return poll_until(Deadline::after(timeout)); }

  /// Gives this end up for this process, with all copies of this handle. The other end is told when every process that
  /// had this end closed it or died.
  void close() noexcept;
  bool closed() const noexcept;  ///< whether this process gave up this end

  /// A descriptor that is readable while recv() would not wait, for poll(), epoll and event loops. It is an eventfd of
  /// this process and belongs to the connection: do not read it, do not close it. The first call starts a thread of
  /// shoal's own, which watches all connections of the process.
  int fileno() const;

 protected:
  struct Core;
  AnyConnection() = default;
  explicit AnyConnection(Hold end, std::uint64_t schema);
  static std::pair<Hold, Hold> make(const PipeOptions& options, std::uint64_t schema);

  void send(Encoder& message, Deadline deadline, const char* operation) const;
  bool try_send(Encoder& message) const;
  bool receive(Received& message, Deadline deadline, const char* operation) const;
  bool poll_until(Deadline deadline) const;
  const Hold& end() const;

 private:
  template <class T>
  friend struct Pipe;
  friend class Waitable;
  friend class ReadinessWatch;
  Core& core(const char* operation) const;
  std::shared_ptr<Core> core_;
};

}  // namespace shoal
