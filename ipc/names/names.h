// What processes of a session publish under a key, for others to look up.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/codec/decoder.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/ipc/layout/session_layout.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

class SessionCore;

/// Start of the block that a NameRecord names; an encoded message (bytes, then handles) follows.
struct PublicationLayout {
  static constexpr std::uint64_t kMagic = 0x6d616e6c616f6873;  // "shoalnam"

  std::uint64_t magic;
  std::uint64_t schema;  // of the value's type
  std::uint64_t size;    // bytes of the message, without its handles
  std::uint64_t handles;

  std::byte* message() { return reinterpret_cast<std::byte*>(this + 1); }
};

static_assert(sizeof(PublicationLayout) == 32);

/// A published value as one process looked it up: that process holds all of it.
struct Published {
  Hold block;
  std::span<const std::byte> bytes;
  Decoder::Handles handles;
};

/// This process's view of the session's table of names, which has 256 records. Threads and processes: any. One lock
/// word in the session's first page, with its holder's tag, guards the table. One store makes each change valid, so a
/// process that finds the holder dead goes on. A record belongs to the process that published it, and so do all holds
/// of its message. When that process dies, its reclaimer clears the records before it gives up the holds, and a lookup
/// adds its own holds under the lock: so it finds all of them or none.
class Names {
 public:
  explicit Names(SessionCore& session) : session_(session) {}

  /// Publishes the message, in place of what this process had under the key. Throws std::invalid_argument for a key
  /// that is bad or another living process's, Error if the table is full.
  void publish(const std::string& key, std::uint64_t schema, Encoder& message);
  /// False if this process has nothing under the key.
  bool unpublish(const std::string& key);
  /// Waits for the key to be published. Throws NotPublished at the deadline, DecodeError if it is another type.
  Published find(const std::string& key, std::uint64_t schema, Deadline deadline);
  /// Keys that living processes have published.
  std::vector<std::string> keys();

  /// Clears the records of a dead process; false if the table is locked for too long by somebody who lives.
  bool withdraw(ProcessTag dead);

 private:
  class Locked;
  NameRecord& record(std::uint32_t index) const;
  NameRecord* find_record(const std::string& key) const;
  std::optional<Published> try_find(const std::string& key, std::uint64_t schema);

  SessionCore& session_;
};

}  // namespace shoal
