// Collective operations of one rank of a group.
#pragma once

#include <c10/core/ScalarType.h>
#include <shoal/internal/workers/train/reduce/reduce_kernel.h>
#include <shoal/workers/train/shm_group.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace shoal {

/// A rank's data: contiguous, aligned for its elements. `hold` is the hold on the heap's block that it lies in, or null
/// for private memory. With a hold the other ranks read and write the data in place.
struct Region {
  std::byte* data = nullptr;   ///< the first byte
  std::size_t bytes = 0;       ///< a multiple of an element's
  const Hold* hold = nullptr;  ///< not owned; null: private memory
};

enum class Collective : std::uint32_t;  // group_layout.h
class Mailbox;

/// What all ranks get where they call different collectives, or where one cannot take part in what all call. The group can be
/// used on.
class CollectiveMismatch : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A collective whose data are values of any type. object_collectives.h makes it.
struct ObjectExchange {
  Collective what;                                 ///< which collective it is
  int root;                                        ///< -1 for none
  std::uint64_t schema;                            ///< of the values: all ranks' have to be equal
  std::string type;                                ///< the values' type, as people write it
  std::function<void(Encoder&, int to)> encode;    ///< writes this rank's value for rank `to`
  std::function<void(Decoder&, int from)> decode;  ///< reads rank `from`'s value
};

/// One process as one rank of a ShmGroup; point_to_point.h sends from rank to rank. All ranks call the same collectives in the same order, with the same sizes,
/// types and roots. Each call returns when the result is there and the rank may change its own data. All ranks get the
/// same bits. Movable; one thread at a time uses it; not usable in a forked child. docs/collectives.md has the
/// algorithms.
///
/// - If the calls differ, every rank gets CollectiveMismatch, which says who calls what. The group can be used on.
/// - If a rank dies or leaves (destroys its Communicator) while others are in a collective or start one, they get
///   PeerDied, which names it, within a second, from that call and every later one. Their outputs then have any
///   content.
/// - If a rank throws TimeoutError, the group is broken. All others get a TimeoutError, too, which names the rank that
///   gave up: from the same collective or, if they had just finished that, from the next one.
class Communicator {
 public:
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const;        ///< this process's
  int world_size() const;  ///< ranks in the group
  /// CPUs for each of the ranks that share this rank's CPUs. To be asked when all have joined: after a collective.
  double cpu_share() const;
  /// Sets how long a collective, a send or a receive waits for the other ranks; 30 minutes at first.
  void set_timeout(std::chrono::nanoseconds timeout);

  /// data = the reduction of all ranks' data.
  void all_reduce(Region data, c10::ScalarType type, ReduceOp op);
  /// root's data = the reduction of all ranks' data; the others' data stays as it is.
  void reduce(Region data, c10::ScalarType type, ReduceOp op, int root);
  // The collectives below move bytes: a `type`, if given, is only compared, like the sizes.
  using Type = c10::ScalarType;  ///< of elements
  /// data = root's data.
  void broadcast(Region data, int root, Type type = Type::Undefined);
  /// outputs[r] = rank r's input, of input.bytes each.
  void all_gather(Region input, std::span<std::byte* const> outputs, Type type = Type::Undefined);
  /// Like all_gather, for root alone; only root needs `outputs`.
  void gather(Region input, std::span<std::byte* const> outputs, int root, Type type = Type::Undefined);
  /// `input` is world_size parts of equal size; output = the reduction of all ranks' part for this rank.
  void reduce_scatter(Region input, std::byte* output, c10::ScalarType type, ReduceOp op);
  /// output = root's part for this rank. Only root needs an input, of world_size times part_bytes.
  void scatter(Region input, std::byte* output, std::size_t part_bytes, int root, Type type = Type::Undefined);
  /// Every rank sends a part to every rank. `input` is the parts for rank 0, 1, ... one after the other, of
  /// input_bytes[r] each; `output` gets those from rank 0, 1, ..., of output_bytes[r] each. Parts may be empty. If a rank
  /// expects another size from a rank than that one sends, all get CollectiveMismatch, which names the two. So do they
  /// if what one rank gives makes no sense by itself.
  void all_to_all(Region input, std::span<const std::size_t> input_bytes, std::byte* output,
                  std::span<const std::size_t> output_bytes, Type type = Type::Undefined);
  /// Returns when all ranks have called it.
  void barrier();
  /// Exchanges values of any type: object_collectives.h calls it.
  void exchange(const ObjectExchange& exchange);
  /// Takes part in a collective that this rank cannot do, for what it was given: nobody is left waiting, and the group
  /// goes on. Throws CollectiveMismatch with `why`; the others get one that says so, too.
  [[noreturn]] void refuse(Collective what, const std::string& why);
  /// Breaks the group for all ranks: what they are in, and what they call later, throws Error, which names this rank.
  /// Threads: any, also beside one that is in a collective.
  void abort() noexcept;
  /// How many collectives this rank has begun, as the others see it: not those whose arguments were refused before.
  std::uint64_t begun() const;
  /// This rank's messages to and from others: point_to_point.h calls it.
  Mailbox& mailbox() const;
  /// The same, for who may have it longer than this object lives.
  std::shared_ptr<Mailbox> share_mailbox() const;

 private:
  friend class ShmGroup;
  friend class TwoLevelGroup;  // ends the waits of its ranks from another thread
  struct State;
  explicit Communicator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shoal
