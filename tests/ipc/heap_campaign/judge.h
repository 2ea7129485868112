// Who has which memory, noted apart from the heap, so that the heap's faults cannot hide in it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/ipc/heap_campaign/pattern.h"

namespace shoal::test {

/// What a process knows of a block that it holds; crosses with it.
struct Ident {
  std::uint32_t serial = 0;  // its number among all blocks of the campaign
  std::uint32_t owner = 0;   // the pid of who made it
  std::uint64_t size = 0;
  std::uint64_t bait = 0;
  bool sparse = false;  // only one word in Pattern::kSparse bytes is written
};

/// A mapping of its own that all processes of the campaign share, made before them. Each block is a Record; each place
/// of the heap names the record of the last block that was made there; each process sets a bit in the record of a block
/// while it has it. So two live blocks in one memory are seen when the second one is made, even if nobody writes.
/// Blocks that are in messages alone have no bit: if their memory is given away, whoever receives them sees it.
class Judge {
 public:
  static constexpr int kSeats = 40;  // processes that run at one time
  static constexpr int kReports = 32;

  /// What all processes count together.
  struct Figures {
    std::atomic<std::uint64_t> made, large, verified, bytes, refused, received, adopted, trims, delays, forks, rings,
        chunks, damaged, kills, kills_at_points, stops;
  };

  /// A process of the campaign, as the one that starts and kills them sees it.
  struct Seat {
    std::atomic<std::int32_t> pid;
    std::atomic<std::uint32_t> incarnation;    // grows whenever its bits are cleared
    std::atomic<std::uint32_t> tag;            // ProcessTag's word
    std::atomic<int> kill_label, delay_label;  // orders, indices of labels; -1 for none
    std::atomic<std::uint32_t> delay_mean, delay_one_in;
    std::atomic<std::uint64_t> operations;
  };

  /// A place where one process leaves a hold for any other, outside of a message.
  struct Mailbox {
    std::atomic<std::uint32_t> state;             // 0 empty, 1 being written, 2 full, kReading and more being read
    static constexpr std::uint32_t kReading = 3;  // plus the reader's seat
    std::uint32_t word, lender;
    std::uint64_t block;
    Ident ident;
  };

  /// For a heap of so many bytes of data from this address on.
  static Judge& create(const std::byte* data, std::uint64_t bytes, unsigned seed);
  Judge(const Judge&) = delete;

  /// A block was made at `data`, by the process in this seat: it has it from now on. Damage where others have some of
  /// that memory.
  Ident note_made(int seat, const std::byte* data, std::size_t size, std::uint64_t bait);
  /// The process has it from now on, or no longer; the latter before it lets go.
  void note_held(int seat, const Ident& block);
  void note_dropped(int seat, const Ident& block);
  /// Compares all bytes, and whether the memory was given to others meanwhile. False where it was damaged.
  bool verify(int seat, const std::byte* data, const Ident& block, const char* when);

  /// Where the heap's data begins.
  const std::byte* data() const { return heap; }
  /// The process in the seat is gone: it holds nothing.
  void bury(int seat);
  void report(const std::string& text);

  unsigned seed;
  std::atomic<bool> stop;
  Figures figures;
  Seat seats[kSeats];
  Mailbox mailboxes[kSeats];
  std::atomic<int> reports;
  char texts[kReports][1024];

 private:
  static constexpr std::uint32_t kRecords = 1u << 18;
  static constexpr std::uint64_t kPage = 4096, kUnit = 64;
  static constexpr std::uint32_t kSmallBlocks = ~0u;  // of a page: its units say more

  struct Record {
    std::atomic<std::uint32_t> serial;
    std::atomic<std::uint32_t> given_to;  // the block that was made in its memory later
    std::uint32_t seat, owner;
    std::uint64_t payload, size;
    Pattern pattern;
  };

  Judge() = default;
  Record& record(std::uint32_t serial) { return records[serial % kRecords]; }
  std::uint64_t offset(const std::byte* at) const { return std::uint64_t(at - heap); }
  void claim(int seat, std::uint32_t serial, std::uint64_t from, std::uint64_t size);
  void take_over(int seat, std::uint32_t old, std::uint32_t serial, std::uint64_t at);
  bool lives(int seat) const;
  std::string describe(std::uint32_t serial);
  std::string whose(std::uint64_t value, std::uint64_t at);

  const std::byte* heap;
  std::uint64_t heap_bytes;
  std::atomic<std::uint32_t> next_serial;
  std::atomic<std::uint32_t>* pages;             // serial of the large block there, or kSmallBlocks
  std::atomic<std::uint32_t>* units;             // serial of the small block there
  std::atomic<std::uint64_t> holders[kRecords];  // a bit a seat
  Record records[kRecords];
};

}  // namespace shoal::test
