// Calls of rank 0's store that end in time, answered or not.
#pragma once

#include <shoal/internal/workers/train/hosts/meeting.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace shoal {

/// A store behind a lost link, or in a stopped process, does not answer, and c10d's calls of it cannot be given up. So each
/// runs in a thread of its own, for which the asker waits a moment, unless an earlier one is still unanswered. Destruction
/// ends the connection if one is still open. Threads: any.
class StoreQuestions {
 public:
  enum class End { answered, refused, open };
  struct Answer {
    End end = End::open;
    std::string text;
  };

  explicit StoreQuestions(StoreConnection& store) : store_(store) {}
  StoreQuestions(const StoreQuestions&) = delete;
  ~StoreQuestions();

  /// What the question returns. `refused`: it threw, or the store is gone; `open`: it has not returned yet.
  Answer ask(const std::function<std::string(StoreConnection&)>& question);

 private:
  struct Asked;
  StoreConnection& store_;
  std::mutex mutex_;  // of these:
  std::vector<std::shared_ptr<Asked>> asked_;
  std::vector<std::thread> threads_;
};

}  // namespace shoal
