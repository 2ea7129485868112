// Descriptors that this process has sent and nobody has fetched yet. Not for users.
#pragma once

#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/ipc/fork/one_per_process.h>
#include <shoal/ipc/fd.h>
#include <shoal/ipc/heap.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// An offer in shared memory, in a block of its own that travels with the message: whoever has it may fetch the
/// descriptor from the process that it names, by the secret.
struct DescriptorOfferLayout {
  static constexpr std::uint32_t kMagic = 0x63736564;  // "desc"
  static constexpr std::uint32_t kVersion = 2;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t sender;  // ProcessTag
  std::uint32_t reserved;
  std::uint64_t secret[2];
};

static_assert(sizeof(DescriptorOfferLayout) == 32);

/// A table of duplicates, and a thread that hands them out over a Unix socket. A descriptor cannot lie in shared
/// memory, and many systems forbid pidfd_getfd() between processes that do not descend from each other, so the receiver
/// asks the sender. One a process, never destroyed; a forked child closes its copies and has its own. Threads: any; a
/// fork waits for the mutex.
class DescriptorOffers {
 public:
  static DescriptorOffers& current();

  /// Makes an offer and lets it travel with the message; returns the handle's index. Keeps a duplicate for
  /// as long as anyone else has the offer.
  std::uint32_t offer(int descriptor, Encoder& message);
  /// Throws PeerDied if the sender is gone, DecodeError if the block is no offer, SystemError if the sender or this
  /// process has no room for a descriptor.
  static Fd fetch(const Hold& offer);
  /// In a fork's child that has adopted its parent's holds: those of the parent's table are of no use here, and with
  /// them the parent would keep its duplicates as long as the child lives.
  static void let_go_of_parents() noexcept;

 private:
  friend class OnePerProcess<DescriptorOffers>;
  struct Offer {
    OwnFile duplicate;
    Hold block;
  };
  using Secret = std::uint64_t[2];
  DescriptorOffers();
  OwnFile make_spare() const;
  void serve();
  void take_connection();
  void answer(int connection);
  bool forget_fetched();
  /// The table's own, under the mutex; -1 if there is none.
  int find(const Secret& secret) const;
  void close_inherited() noexcept;
  struct AroundFork;

  OwnFile listener_;
  OwnFile first_offer_;  // an eventfd: signals the first offer, which has to be forgotten one day
  OwnFile spare_;        // given up for a connection if this process has no descriptor left
  // Protected by the mutex of offers.cpp.
  std::vector<Offer> offers_;
};

}  // namespace shoal
