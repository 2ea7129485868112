// What a started process leaves behind about its end, in memory that its parent made before the start.
#pragma once

#include <shoal/ipc/heap.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// How far a started process had come.
enum class ChildPhase : std::uint32_t {
  kMade = 0,        // it is on its way to shoal::init: nothing of the program's own has run but static initializers
  kStarting = 1,    // it is part of the session and reads its arguments
  kInFunction = 2,  // the user's function runs
  kReturned = 3,    // that has returned or thrown
  kProgram = 4,     // it is a program of its own: only that knows how far it has come
};

enum class CrashKind : std::uint32_t { kNone = 0, kException = 1, kTerminate = 2, kSignal = 3 };

/// A record in shared memory for each child; parent and child hold it. Only the child writes it, also from its signal
/// handlers, with plain stores and no lock; only the parent reads it, when the child has ended. A crashing child may
/// have scribbled over it, so the reader trusts no count and no text. Only head and tail are cleared: counts say what
/// is there.
struct CrashRecord {
  static constexpr std::uint64_t kMagic = 0x6873617263'0a0dull;  // "crash" and a line end
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint32_t kMostFrames = 64, kMostImages = 16;
  static constexpr std::uint32_t kNoImage = ~0u;
  static constexpr std::size_t kTailBytes = 4096;

  /// A program or library that a frame lies in.
  struct Image {
    std::uint64_t begin, end;  // where it is mapped
    std::uint64_t bias;        // address in the process minus address in the file
    std::uint32_t build_id_size;
    std::uint8_t build_id[36];
    char path[192];
  };
  struct Frame {
    std::uint64_t address;  // in the process
    std::uint32_t image;    // index; kNoImage if it lies in none or nobody looked
    std::uint32_t reserved;
  };

  std::uint64_t magic;
  std::uint32_t version;
  std::atomic<ChildPhase> phase;
  std::atomic<CrashKind> kind;
  std::atomic<std::uint32_t> writer;  // thread that describes its crash here; 0: none
  std::int32_t signal;                // 0: none
  std::int32_t code;                  // si_code
  std::uint64_t address;              // si_addr
  std::int64_t time;                  // of the steady clock
  std::atomic<std::uint32_t> frame_count, image_count;
  std::atomic<std::uint64_t> tail_written;  // bytes ever written to standard error; the last ones are in `tail`
  char type[192];
  char message[1024];
  Frame frames[kMostFrames];
  Image images[kMostImages];
  char tail[kTailBytes];
};

static_assert(sizeof(CrashRecord::Image) == 256 && sizeof(CrashRecord::Frame) == 16);
static_assert(offsetof(CrashRecord, type) == 64 && sizeof(CrashRecord) == 64 + 192 + 1024 + 1024 + 4096 + 4096);

/// The place of one call, which any process can look up: an offset (as the linker counts) in an image.
struct CodePlace {
  std::string image;                   // path; empty: in none
  std::vector<std::uint8_t> build_id;  // empty: it has none
  std::uint64_t offset = 0;            // the address itself if there is no image
};

/// A record's contents, as its reader has them.
struct CrashReport {
  ChildPhase phase = ChildPhase::kMade;
  CrashKind kind = CrashKind::kNone;
  int signal = 0, code = 0;
  std::uint64_t address = 0;
  std::int64_t time = 0;
  std::string type, message, stderr_tail;
  std::vector<CodePlace> frames;
};

/// Reads a record and trusts nothing in it. Called by the parent after the child's end, or by the process whose record
/// it is.
CrashReport read_crash_record(const CrashRecord& record);

/// The parent's hold on a record. Made before the start; one thread at a time.
class CrashRecordBlock {
 public:
  static CrashRecordBlock create(ChildPhase phase = ChildPhase::kMade);
  HoldRef lend() const { return hold_.share_in_transit(); }
  CrashReport read() const;
  /// Whether its process has thrown what nobody in it catches, so that it is on its way to its report and its end.
  bool has_thrown() const;

 private:
  explicit CrashRecordBlock(Hold hold) : hold_(std::move(hold)) {}
  Hold hold_;
};

/// In the child: takes the record that its parent lent, and holds it until the process ends. Throws like adopt_lent.
CrashRecord& adopt_crash_record(const HoldRef& lent, ProcessTag parent);

}  // namespace shoal
