// Waits of this process for words of others, and what becomes of them when those die. Not for users.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/tensors/cuda/word.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace shoal {

/// What streams of this process wait for. A stream that waits for a word of a process that was killed would wait for
/// ever, so a thread looks ten times a second whether the processes live, and raises the words of the dead itself. The
/// thread calls no driver and takes no lock that is held around a call of one: it has to go on when all streams wait
/// and each call of the driver waits for them. One a process, owned by DeviceIpc. Threads: any.
class WordWatch {
 public:
  WordWatch();

  enum class Answer {
    kQueue,    ///< it is looked after: queue the wait
    kTooMany,  ///< `most` other streams wait
  };
  /// Says that the stream is about to wait until the word, of a page of this process's or another's, has the value.
  /// `keep` keeps the page until then; `most` is DeviceMemory::most_waiting_streams.
  Answer add(StreamName stream, Word word, std::uint64_t value, ProcessTag producer, std::shared_ptr<void> keep,
             std::size_t most);

  /// Waits in the calling thread, until the word has the value or its process is dead.
  static void wait_here(Word word, std::uint64_t value, ProcessTag producer);

  struct Awaited {
    Word word;
    std::uint64_t value;
    std::shared_ptr<void> page;  // what was given to keep
  };
  /// What this stream was told to wait for, of processes that live, and is not there yet. Not of `self`.
  std::vector<Awaited> awaited_by(StreamName stream, ProcessTag self);

  /// How many waits are not over, or are still looked after.
  std::size_t waits();

 private:
  struct Wait {
    StreamName stream;
    Word word;
    std::uint64_t value;
    ProcessTag producer;
    std::shared_ptr<void> keep;
    int looks_left;  // once the producer is dead: a write that its device had begun may still come, and lower the word
  };
  /// If its producer lives: a word of a dead one may be there because another process raised it.
  static bool is_over(const Wait& wait) { return wait.word.has(wait.value) && wait.looks_left == kLooksAtTheDead; }
  static constexpr int kLooksAtTheDead = 3;
  void prune();
  void run();
  void look();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Wait> waits_;
};

}  // namespace shoal
