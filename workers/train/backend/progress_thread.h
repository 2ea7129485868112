// A thread that does a group's collectives beside the rank's own work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace shoal {

/// Does what it is given, one after the other, in the order of push(). Owned by a CollectiveBackend. The destructor waits until
/// all is done: what others wait for is not broken off because nobody here does. A task may destroy it, as its last owner:
/// the rest is done inside that call. Threads: any. A forked child has no such thread; its copy of the object does
/// nothing.
class ProgressThread {
 public:
  ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ~ProgressThread();

  /// `task` throws nothing. After what it calls of others it uses nothing of the owner's: that may be gone.
  void push(std::function<void()> task);

 private:
  /// Apart, so that a forked child can leave it alone, whatever its locks are.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    bool closing = false;
    bool is_threads = false;  // which deletes it at its end
    std::thread thread;
    void run();
    /// Does what is there. With the lock, but for the tasks.
    void work_off(std::unique_lock<std::mutex>& lock);
  };
  std::uint32_t fork_count_;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
