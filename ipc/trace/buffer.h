// How the events of a traced process lie in shared memory. Pictured in docs/observing.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal {

enum class TraceKind : std::uint32_t {
  kSpan = 0,   // something with a name: a collective, a batch, whatever the program says
  kPut = 1,    // a message went into a queue
  kGet = 2,    // a message came out of one
  kWait = 3,   // a thread slept until others did something
  kStart = 4,  // a process was started: from the wish to its pid
  kRun = 5,    // a started process ran its function
};

/// Something that took from `start` to `end`. Written when it is over, so there is no beginning without an end.
struct TraceRecord {
  std::uint64_t start, end;  // CLOCK_MONOTONIC, in nanoseconds
  std::uint64_t subject;     // kPut, kGet: the queue's block   kWait: the word that it slept on
  std::uint64_t link;        // kPut, kGet: the message's ticket   kStart, kRun: the pid of the one that was started
  std::uint64_t value;       // bytes; kSpan: what the program says
  TraceKind kind;
  std::uint32_t thread;  // as gettid()
  char name[32];
};

static_assert(sizeof(TraceRecord) == 80);

/// Payload of a block of type kTrace: the events of one process, in a ring with one writer (under a mutex of its
/// process) and one reader, the tracer. Both hold the block, so that neither's death takes it from the other. An event
/// that finds no room is counted and dropped. Killed at any instruction, the writer leaves whole events: one exists
/// when `written` says so.
struct TraceBuffer {
  static constexpr std::uint32_t kMagic = 0x63617274;  // "trac"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint64_t kRecords = 8192;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t owner;   // tag of the process whose events these are
  std::uint32_t tracer;  // tag of the one that they are for
  std::int32_t pid;
  std::uint32_t reserved;
  char name[32];                                   // of the process, when it began
  alignas(64) std::atomic<std::uint64_t> written;  // events, ever
  std::atomic<std::uint64_t> lost;
  alignas(64) std::atomic<std::uint64_t> drained;
  alignas(64) TraceRecord records[kRecords];
};

static_assert(sizeof(TraceBuffer) == 192 + 80 * TraceBuffer::kRecords);

}  // namespace shoal
