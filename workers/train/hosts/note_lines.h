// Short messages between the ranks of a column, read by the thread that waits for them.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/train/gloo/opened_sockets.h>
#include <shoal/internal/workers/train/group/mailboxes.h>
#include <shoal/ipc/fd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace shoal {

/// A connection to each other rank of a column, beside Gloo's. With a message of Gloo's the network is crossed two or three
/// times, since each side first says that it is ready, and a thread is woken each time: at 4 KiB that is most of a
/// collective's time. Here a message goes at once, and the rank that waits for it reads it from the kernel by itself.
///
/// Messages between two ranks come in the order in which they were posted. Whoever posts never waits; what the kernel does
/// not take goes out in take() and flush(). The connections belong to GlooGroup's: whether the end of one is
/// a death is for those who watch that one to say, by abort() or lose(), so a wait for a connection that has ended lasts
/// until then, or for five seconds.
///
/// Owned by one thread, which uses it; abort() and lose() may be called by any.
class NoteLines {
 public:
  /// Connects with all others, those of lower number from here; they meet in the store, whose waits may throw. `addresses`:
  /// as for GlooGroup. Throws GlooFailure, SystemError, Error.
  NoteLines(c10d::Store& store, int index, const std::vector<std::string>& addresses, Deadline deadline,
            std::chrono::milliseconds link_timeout);
  NoteLines(const NoteLines&) = delete;
  ~NoteLines();

  /// Sends a message that is these pieces one behind the other, of kMost bytes together at the most. They are copied.
  void post(int peer, std::span<const std::span<const std::byte>> pieces);
  /// The next message from this rank; it stays until the next call for the same one. Throws GlooFailure.
  std::span<const std::byte> take(int peer, Deadline deadline);
  /// Waits until the kernel has all that was posted: this rank may do something else then. Throws GlooFailure.
  void flush(Deadline deadline);

  /// Ends all connections: whoever waits, now or later, here or on the other side, gets GlooFailure.
  void abort() noexcept;
  /// What has not come from this one when its connection ends never comes: whoever waits for it, now or later, gets
  /// GlooFailure.
  void lose(int peer) noexcept;

  static constexpr std::size_t kMost = 4 << 20;

 private:
  struct Line;

  void meet(c10d::Store& store, int index, const std::vector<std::string>& addresses, Deadline deadline,
            std::chrono::milliseconds link_timeout);
  void accept_from(const OwnSocket& listener, std::uint64_t token, int first, Deadline deadline);
  void write(Line& line);
  void read(Line& line);
  void sleep(Line* reading, Deadline deadline, MailNaps& mail);
  void check(int peer, Line& line, Deadline deadline) const;
  void wake() noexcept;

  Fd wakes_;
  std::vector<Line> lines_;  // by number; this rank's has no connection
  std::vector<std::atomic<bool>> lost_;
  std::atomic<bool> aborted_{false};
};

}  // namespace shoal
