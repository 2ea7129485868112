// The end of waiting for a store that does not answer.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/train/gloo/opened_sockets.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace shoal {

/// If this is still there at the deadline, some connections are shut down, so that the calls on them end. c10d's store waits without end for an answer, which does not come while rank 0's process is stopped:
/// its kernel still says that it lives. A thread waits; without one nothing is ended. One owner.
class LastMoment {
 public:
  /// The connections to this port that this process has made since.
  LastMoment(int port, Deadline deadline);
  /// These, which outlive this.
  LastMoment(const OpenedSockets& sockets, Deadline deadline);
  LastMoment(const LastMoment&) = delete;
  LastMoment& operator=(const LastMoment&) = delete;
  ~LastMoment();

  bool is_over() const { return over_; }  ///< whether it has ended connections

 private:
  void start(Deadline deadline, std::function<void()> end);

  OpenedSockets sockets_;
  std::mutex mutex_;  // of `done_`
  std::condition_variable changed_;
  bool done_ = false;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace shoal
