// What a ThreadPool does, whatever the types of its tasks.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/pool/host.h>
#include <shoal/internal/workers/pool/request.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace shoal::detail {

/// A request whose tasks run in threads of this process.
class ThreadJob : public Request {
 public:
  using Request::Request;
  /// Runs a task, without the mutex, several at once. What it throws is the task's failure.
  virtual void run(std::size_t task) = 0;
  /// It has run.
  void succeed() { finish_one(); }

  /// How many of its tasks run at this moment; under the mutex of their Host.
  std::size_t running = 0;
};

/// Threads that take tasks in the order in which they were asked for. Belongs to the process that made it: a forked
/// copy has no threads. Threads: any, at once.
class ThreadCore final : public Host {
 public:
  /// 0 threads: one for each CPU that this process may use. `initializer`, if any, is called in each thread first.
  ThreadCore(int threads, std::function<void()> initializer);
  ~ThreadCore() override;

  int size() const override { return int(threads_.size()); }
  /// Throws std::invalid_argument, PoolStopped.
  void submit(std::shared_ptr<ThreadJob> job, Awaited awaited);
  bool wait(const std::function<bool()>& ready, Deadline deadline) override;
  void abandon(const std::shared_ptr<Request>& request) override;
  void finish(const Request& request) override;
  std::mutex& mutex() override { return mutex_; }

  void close();
  /// False at the deadline.
  bool join(Deadline deadline);
  /// Begins no further task. Waits for nothing: a thread cannot be ended from outside.
  void terminate() noexcept;
  /// The same, and waits for the threads. False in a forked copy, which has none, and in a task, which would wait for
  /// itself: then this object must not be destroyed.
  bool end() noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  void serve();
  void stop(const std::exception_ptr& error);
  bool wait_locked(Lock& lock, const std::function<bool()>& ready, Deadline deadline);

  const std::function<void()> initializer_;

  std::mutex mutex_;  // of everything below, but threads_
  std::condition_variable work_, done_;
  std::deque<std::shared_ptr<ThreadJob>> jobs_;  // that have tasks to be begun
  int running_ = 0;                              // threads that have not returned
  bool closed_ = false;
  std::exception_ptr stopped_;
  std::vector<std::thread> threads_;  // written by the constructor and by who waits for their end
};

}  // namespace shoal::detail
