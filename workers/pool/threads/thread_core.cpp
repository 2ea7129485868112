#include <shoal/internal/workers/pool/threads/thread_core.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/ipc/error.h>
#include <shoal/workers/pool_failure.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <utility>

namespace shoal::detail {

ThreadCore::ThreadCore(int threads, std::function<void()> initializer) : initializer_(std::move(initializer)) {
  if (threads < 0)
    throw std::invalid_argument(
        fmt::format("ThreadPool: {} threads: give their number, or 0 for one each CPU", threads));
  const int count = threads == 0 ? usable_cpus() : threads;
  threads_.reserve(std::size_t(count));
  try {
    for (int i = 0; i < count; ++i) {
      {
        const Lock lock(mutex_);
        ++running_;
      }
      threads_.emplace_back([this] { serve(); });
    }
  } catch (...) {
    {
      const Lock lock(mutex_);
      --running_;
    }
    end();
    throw;
  }
}

ThreadCore::~ThreadCore() { end(); }

void ThreadCore::serve() {
  std::exception_ptr failed_start;
  if (initializer_) try {
      initializer_();
    } catch (const std::exception& error) {
      failed_start =
          std::make_exception_ptr(PoolStopped(fmt::format("the pool's threads cannot start: {}", describe(error))));
    } catch (...) {
      failed_start = std::make_exception_ptr(PoolStopped("the pool's threads cannot start"));
    }
  Lock lock(mutex_);
  if (failed_start && !stopped_) stop(failed_start);
  for (;;) {
    work_.wait(lock, [&] { return stopped_ || closed_ || !jobs_.empty(); });
    if (stopped_ || jobs_.empty()) break;
    std::shared_ptr<ThreadJob> job = jobs_.front();
    if (!job->has_next()) {  // of no elements, or abandoned
      jobs_.pop_front();
      continue;
    }
    const std::size_t task = job->take_next();
    if (!job->has_next()) jobs_.pop_front();
    ++job->running;
    lock.unlock();
    std::exception_ptr error;
    try {
      job->run(task);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --job->running;
    if (error)
      job->fail(task, std::move(error));
    else
      job->succeed();
    done_.notify_all();
    lock.unlock();
    job.reset();  // the last handle, maybe: what was captured may call this pool when it goes
    lock.lock();
  }
  --running_;
  done_.notify_all();
}

void ThreadCore::submit(std::shared_ptr<ThreadJob> job, Awaited /*awaited*/) {
  check_owner();
  {
    const Lock lock(mutex_);
    if (stopped_) std::rethrow_exception(stopped_);
    if (closed_) throw PoolStopped("the pool was closed: it takes no more tasks");
    if (!job->has_next()) return;
    jobs_.push_back(std::move(job));
  }
  work_.notify_all();
}

bool ThreadCore::wait_locked(Lock& lock, const std::function<bool()>& ready, Deadline deadline) {
  while (!ready()) {
    if (deadline.passed()) return false;
    done_.wait_for(lock, deadline.left(std::chrono::minutes(1)));
  }
  return true;
}

bool ThreadCore::wait(const std::function<bool()>& ready, Deadline deadline) {
  check_owner();
  Lock lock(mutex_);
  return wait_locked(lock, ready, deadline);
}

void ThreadCore::abandon(const std::shared_ptr<Request>& request) {
  if (!is_own()) return;
  const Lock lock(mutex_);
  request->drop_rest();
}

void ThreadCore::finish(const Request& request) {
  if (!is_own()) return;
  const auto& job = static_cast<const ThreadJob&>(request);
  Lock lock(mutex_);
  done_.wait(lock, [&] { return job.running == 0; });
}

void ThreadCore::close() {
  check_owner();
  {
    const Lock lock(mutex_);
    closed_ = true;
  }
  work_.notify_all();
}

bool ThreadCore::join(Deadline deadline) {
  check_owner();
  Lock lock(mutex_);
  if (!closed_ && !stopped_)
    throw std::invalid_argument(
        "ThreadPool::join: call close() first, or terminate(): a pool that takes tasks does not end");
  return wait_locked(lock, [&] { return running_ == 0; }, deadline);
}

void ThreadCore::stop(const std::exception_ptr& error) {
  stopped_ = error;
  for (const auto& job : jobs_)
    while (job->has_next()) job->fail(job->take_next(), error);
  jobs_.clear();
  done_.notify_all();
}

void ThreadCore::terminate() noexcept {
  // Whoever had the mutex when a copy was forked is not there to unlock it.
  if (!is_own()) return;
  {
    const Lock lock(mutex_);
    if (!stopped_) stop(std::make_exception_ptr(PoolStopped("the pool was terminated: there will be no result")));
  }
  work_.notify_all();
}

bool ThreadCore::end() noexcept {
  if (!is_own()) return false;
  terminate();
  for (const std::thread& thread : threads_)
    if (thread.get_id() == std::this_thread::get_id()) return false;
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
  return true;
}

}  // namespace shoal::detail
