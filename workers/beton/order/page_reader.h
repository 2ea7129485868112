// A thread that reads pages into the kernel's cache ahead of a loop, and gives back those behind it.
#pragma once

#include <shoal/workers/beton/beton_file.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace shoal::detail {

/// Page `number` of a file.
using FilePage = std::pair<BetonFile, std::uint64_t>;

/// The loop goes on at once: asking the kernel for many pages waits for its queue. Nothing but hints: a page that cannot be
/// read is left alone, and whoever maps it in hears of it. Owned by a ReadAhead, whose thread calls; the reader's own begins
/// with the first call. Where there can be none, and in a forked child, the object does nothing. Other processes that read
/// the file, and their deaths, do not matter to it.
class PageReader {
 public:
  PageReader();
  PageReader(const PageReader&) = delete;
  /// Waits for the page that is being asked for, at most.
  ~PageReader();

  /// Into the kernel's cache, in the order of the calls.
  void read(const FilePage& page);
  /// Out of it, unless another process has it mapped in. One that was not read yet is not read.
  void give_back(const FilePage& page);
  /// What has not been read is not.
  void forget_reads();
  /// Waits until all is done that was asked for. For tests.
  void wait();

 private:
  /// Apart, so that a forked child can leave it alone, whatever its locks are.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<FilePage> to_read, to_give_back;
    /// The kernel keeps what it is still reading, or a worker has mapped in: asked again with the next ones, it does not.
    std::deque<FilePage> given_back;
    static constexpr std::size_t kAgain = 3;
    bool closing = false, is_busy = false;
    std::thread thread;

    void run();
    bool is_idle() const { return to_read.empty() && to_give_back.empty() && !is_busy; }
  };
  bool is_mine() const;
  /// Whether the thread is there.
  bool start();

  std::uint32_t fork_count_;
  std::unique_ptr<State> state_;
};

}  // namespace shoal::detail
