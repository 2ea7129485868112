// What a received storage's values still have to wait for. Not for users.
#pragma once

#include <shoal/internal/tensors/cuda/sent_words.h>
#include <shoal/ipc/heap.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace shoal {

/// A word with a hold on its page.
struct AwaitedWord {
  Hold page;
  std::uint32_t index = 0;
  std::uint64_t value = 0;
};

/// The words that streams of this process were told to wait for when they received a storage, and that are not there
/// yet. They go with the storage where it is sent on: the word of the process that sends it on comes behind them in its
/// stream, and is never written if that process ends. Part of an import. Threads: any.
class AwaitedWords {
 public:
  /// Keeps the word, of a page that was checked, until it is there.
  void add(const Hold& page, const SentWord& sent);
  /// Those that are not there yet, of processes that live, with holds of the caller's own.
  std::vector<AwaitedWord> unreached();

 private:
  void prune(std::vector<Hold>& given_up);

  std::mutex mutex_;
  std::vector<AwaitedWord> words_;  // one for each word: its greatest value
};

}  // namespace shoal
