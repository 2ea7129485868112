// Pipe<T>: two connected ends.
#pragma once

#include <shoal/internal/ipc/pipe/any_connection.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/wait.h>

#include <chrono>
#include <optional>
#include <utility>

namespace shoal {

/// One end of a pipe, like multiprocessing.Connection. A handle: copies refer to the same end, also in other processes
/// (connections are encodable). Threads and processes: any, at once; messages arrive in the order in which they were
/// sent. When no process has the other end any more (all closed it, let go of it or died), recv() returns what was sent
/// and then throws EndOfFile, and send() throws BrokenPipe.
template <class T>
class Connection : public AnyConnection {
 public:
  /// Waits for room. Throws BrokenPipe, OutOfSharedMemory, and what encoding throws.
  void send(const T& value) const { send_until(value, Deadline::never()); }
  /// Like send(); throws TimeoutError after `timeout`.
  void send(const T& value, std::chrono::nanoseconds timeout) const { send_until(value, Deadline::after(timeout)); }
  /// Like send(), but returns false if there is no room now.
  bool try_send(const T& value) const {
    Encoder message;
    encode(message, value);
    return AnyConnection::try_send(message);
  }

  /// Waits for a value. Throws EndOfFile, DecodeError.
  T recv() const { return *recv_until(Deadline::never(), "recv"); }
  /// Like recv(); throws TimeoutError after `timeout`.
  T recv(std::chrono::nanoseconds timeout) const {
    std::optional<T> value = recv_until(Deadline::after(timeout), "recv");
    if (!value) throw TimeoutError("Connection::recv: timed out: no value came");
    return std::move(*value);
  }
  /// Like recv(), but returns nothing if there is no value now.
  std::optional<T> try_recv() const { return recv_until(Deadline::now(), "try_recv"); }

 private:
  template <class U>
  friend struct Pipe;
  friend struct Codec<Connection>;
  explicit Connection(Hold end) : AnyConnection(std::move(end), schema_of<T>()) {}

  void send_until(const T& value, Deadline deadline) const {
    Encoder message;
    encode(message, value);
    AnyConnection::send(message, deadline, "send");
  }
  std::optional<T> recv_until(Deadline deadline, const char* operation) const {
    Received message;
    if (!receive(message, deadline, operation)) return std::nullopt;
    Decoder decoder = std::move(message).decoder();
    std::optional<T> value(decode<T>(decoder));
    decoder.finish();
    return value;
  }
};

/// Two connected ends: what one sends, the other receives. `auto [mine, theirs] = shoal::Pipe<int>();` Let go of the
/// end that goes to another process: as long as you have it, your own end never reads the end of file.
template <class T>
struct Pipe {
  Connection<T> first;   ///< only receives if options.duplex is false
  Connection<T> second;  ///< only sends if options.duplex is false

  /// Throws std::invalid_argument for a capacity of 0 or too many, and OutOfSharedMemory.
  explicit Pipe(const PipeOptions& options = {}) : Pipe(AnyConnection::make(options, schema_of<T>())) {}

 private:
  explicit Pipe(std::pair<Hold, Hold> ends) : first(std::move(ends.first)), second(std::move(ends.second)) {}
};

template <class T>
struct Codec<Connection<T>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("shoal::Connection", schema_of<T, Outer...>());
  }
  static void encode(Encoder& encoder, const Connection<T>& connection) {
    encoder.write(encoder.add(connection.end()));
  }
  static Connection<T> decode(Decoder& decoder) {
    return Connection<T>(decoder.handle(decoder.read<std::uint32_t>()).share());
  }
};

}  // namespace shoal
