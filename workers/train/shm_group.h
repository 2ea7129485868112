// A fixed set of ranks that do collective operations in shared memory.
#pragma once

#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/heap.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace shoal {

class Communicator;
class Mailbox;
struct GroupLayout;

/// A handle of a group: made once, usually by the parent, given to every rank (it is encodable), and joined there.
/// Copies refer to the same group. Threads and processes: any.
///
///   ShmGroup group(4);
///   spawn({.nprocs = 4}, +[](int rank, ShmGroup group) { Communicator ranks = group.join(rank); ... }, group);
///
/// Communicator says what happens when a rank dies. When the last handle and the last Communicator are gone, so is the
/// group's memory.
class ShmGroup {
 public:
  /// Throws std::invalid_argument unless 1 <= world_size <= 256; OutOfSharedMemory.
  explicit ShmGroup(int world_size) : ShmGroup(world_size, 0) {}
  /// `first_round`: where the round counters start, for tests of their wrap-around.
  ShmGroup(int world_size, std::uint32_t first_round);

  int world_size() const;  ///< ranks in the group

  /// Makes the calling process this rank until the Communicator is destroyed. A rank can be joined once in the life of
  /// a group. Does not wait for the others: the first collective does, and names in the log whom it has waited for for 10 s.
  /// Throws std::invalid_argument if there is no such rank or it was joined before.
  Communicator join(int rank) const;

 private:
  friend class Communicator;
  friend class Mailbox;
  friend struct Codec<ShmGroup>;
  struct Parts {
    Hold block;
    std::vector<Ring> inboxes;  // by rank: letters about buffers, see PeerBuffers
    std::vector<Ring> mail;     // by rank: messages from one rank to another, see Mailbox
  };
  explicit ShmGroup(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}
  static ShmGroup open(std::shared_ptr<Parts> parts);
  GroupLayout& layout() const;

  std::shared_ptr<Parts> parts_;
};

template <>
struct Codec<ShmGroup> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::ShmGroup", std::uint64_t(2)); }
  static void encode(Encoder& encoder, const ShmGroup& group);
  static ShmGroup decode(Decoder& decoder);
};

}  // namespace shoal
