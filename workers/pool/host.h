// Where a pool's tasks run, as those that wait for results see it.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/fork/owner_process.h>
#include <shoal/internal/workers/pool/request.h>

#include <functional>
#include <memory>
#include <mutex>

namespace shoal::detail {

/// Whether somebody is going to wait for a request at once.
enum class Awaited { kNow, kLater };

/// Belongs to the process that made it. Threads: any, at once.
class Host {
 public:
  Host() = default;
  Host(const Host&) = delete;
  virtual ~Host() = default;

  /// Whether this process made it, and not one of which this is a forked copy.
  [[nodiscard]] bool is_own() const { return owner_.is_this(); }
  /// Tasks that run at once, at most.
  virtual int size() const = 0;
  /// Waits until ready() is true, asked under the mutex. False at the deadline.
  virtual bool wait(const std::function<bool()>& ready, Deadline deadline) = 0;
  /// Gives up what nobody has begun of it.
  virtual void abandon(const std::shared_ptr<Request>& request) = 0;
  /// Waits until nothing of it runs that uses what belongs to the caller's scope: of threads, what functions captured.
  virtual void finish(const Request& /*request*/) {}
  /// The mutex of everything that belongs to requests.
  [[nodiscard]] virtual std::mutex& mutex() = 0;
  /// Locks mutex(). Throws std::invalid_argument in a forked copy: a thread that had the mutex at the fork is not there
  /// to unlock it.
  [[nodiscard]] std::unique_lock<std::mutex> lock() {
    check_owner();
    return std::unique_lock(mutex());
  }

 protected:
  /// Throws std::invalid_argument in a forked copy of the process that made it.
  void check_owner() const;

  const OwnerProcess owner_;
};

}  // namespace shoal::detail
