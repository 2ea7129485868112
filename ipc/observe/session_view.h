// What is in a session at one moment: processes, queues, locks, the heap.
#pragma once

#include <shoal/internal/ipc/observe/process_usage.h>
#include <shoal/internal/ipc/observe/session_file.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// What a thread waits for if no kind of block has a name for it.
constexpr std::string_view kOtherWait = "other";

/// A thread that sleeps until others do something.
struct SeenWait {
  std::uint32_t slot;  // of its process
  std::uint32_t thread;
  std::string_view what;  // "get", "lock": see BlockKind::wait_name
  std::uint64_t block;    // what it waits for: the block's position; 0 if that is no longer in use
  std::uint64_t since;    // CLOCK_MONOTONIC, in nanoseconds
};

/// Finds what a thread waits for that sleeps on this word of the session's memory, and its block.
struct WaitSubject {
  std::string_view what = kOtherWait;
  std::uint64_t block = 0;
};
WaitSubject subject_of_wait(const SessionFile& file, std::uint64_t word);

struct SeenProcess {
  enum class State { kAlive, kEnded, kBeingReclaimed };  // kEnded: nobody has given back yet what it had

  std::uint32_t slot, generation;
  std::optional<std::uint32_t> parent;  // slot
  pid_t pid;
  int rank;
  std::string name, label;
  State state;
  ProcessUsage usage;
  std::vector<SeenWait> waits;
  std::uint64_t extents = 0;                        // that it owns
  std::uint64_t owned_blocks = 0, owned_bytes = 0;  // in use in them
  std::uint64_t held_blocks = 0, held_bytes = 0;    // that it holds, whoever owns them
};

struct SeenQueue {
  enum class Kind { kQueue, kJoinable, kPipe, kChannel };  // kChannel: of a parent and its child, shoal's own

  std::uint64_t block;
  Kind kind;
  std::string name;
  std::uint32_t capacity, depth;
  std::uint64_t byte_capacity;         // 0: none
  std::optional<std::uint64_t> bytes;  // of the messages in it; none if there are too many to look at
  std::uint64_t put, got;              // messages, ever
  bool closed;
  std::uint32_t crashes;                    // holders that died without leaving
  std::optional<std::uint64_t> unfinished;  // tasks of a joinable queue
  std::vector<std::uint32_t> holders;       // slots
  std::vector<SeenWait> waits;
};

const char* name_of(SeenQueue::Kind kind);

/// A lock that somebody holds or waits for.
struct SeenLock {
  std::uint64_t block;
  bool recursive;
  std::optional<std::uint32_t> holder;  // slot
  std::uint32_t deaths;                 // holders that died with it
  std::vector<SeenWait> waits;
};

struct SeenHeap {
  std::uint64_t blocks = 0, bytes = 0;  // in use
  std::uint64_t message_bytes = 0;      // of blocks that some message under way holds
  std::uint64_t committed_bytes = 0, idle_bytes = 0, peak_bytes = 0, resident_bytes = 0, address_bytes = 0;
  std::uint64_t extents = 0, orphan_extents = 0, orphan_bytes = 0;
  std::uint64_t allowed_bytes = 0;  // 0: never asked for
  std::string allowed_by;
  std::uint64_t deaths = 0;  // processes reclaimed after a death, ever
};

struct SessionView {
  std::uint64_t time;  // CLOCK_MONOTONIC, in nanoseconds
  pid_t root;
  bool complete;                       // false: it was too much to look at, or the file was cut short
  std::vector<SeenProcess> processes;  // by slot
  std::vector<SeenQueue> queues;       // by position
  std::vector<SeenLock> locks;
  std::vector<SeenWait> other_waits;  // for anything but queues and locks
  SeenHeap heap;

  const SeenProcess* process(std::uint32_t slot) const;
};

/// Looks through the session while it is in use: each figure is right for some moment during the call. It believes
/// nothing and changes nothing; see SessionFile. Some 20 ns a block. One thread.
SessionView look_at(const SessionFile& file, Pss pss = Pss::kSkip);

}  // namespace shoal
