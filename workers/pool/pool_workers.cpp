// The pool's workers: started, looked after, replaced when they died, ended when they take too long.
#include <fmt/format.h>
#include <poll.h>
#include <shoal/internal/runtime/crash/raised.h>
#include <shoal/internal/workers/pool/pool_core.h>
#include <shoal/runtime/stop.h>
#include <shoal/workers/pool_failure.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace shoal::detail {
namespace {

/// Workers that die one after the other before their first task is asked for: then there is no hope for another.
constexpr int kMostFailedStarts = 3;
/// Between SIGABRT and SIGKILL, for a task that takes too long.
constexpr std::chrono::milliseconds kPatience{500};

std::string late_start(std::chrono::nanoseconds limit) {
  return fmt::format(" within the {} s of start_timeout", std::chrono::duration<double>(limit).count());
}

}  // namespace

int PoolCore::free_index() const {
  int index = 0;
  const auto taken = [&](const auto& worker) { return !worker->retiring && worker->index == index; };
  while (std::ranges::any_of(workers_, taken)) ++index;
  return index;
}

void PoolCore::start_worker() {
  const std::string name = fmt::format("{} {}", options_.name, ++started_);
  WorkerEnds ends{Ring::create(std::uint32_t(options_.tasks_ahead), kTaskSchema, 0, name + " tasks"), results_.share(),
                  SharedPart<ProgressLayout>::create(BlockType::kBytes), started_, free_index()};
  Process<ServedAll> process = start_({.name = name,
                                       .start_method = options_.start_method,
                                       .grace_period = kGracePeriod,
                                       .num_threads = options_.num_threads,
                                       .fork_despite_threads = options_.fork_despite_threads},
                                      ends);
  process.start();
  workers_.push_back(std::make_unique<Worker>(std::move(ends), std::move(process)));
}

std::vector<int> PoolCore::pids() {
  const Lock lock = Host::lock();
  if (!leading_) look_after_workers();  // whoever leads does so anyway
  std::vector<int> result;
  for (const auto& worker : workers_) {
    pollfd end{worker->process.sentinel(), POLLIN, 0};
    if (::poll(&end, 1, 0) == 0) result.push_back(worker->process.pid());
  }
  return result;
}

void PoolCore::end_stuck() {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& worker : workers_) {
    // One that was told to end gets nothing more to do, so it has to: also if it lived on and is done meanwhile.
    if (worker->patience) {
      if (worker->patience->passed()) worker->process.kill();
      continue;
    }
    if (worker->ends.progress->ready.load() == 0) {
      // Its start and its initializer are no task: the first one begins when they are over.
      worker->busy_since = now;
      if (options_.start_timeout.count() == 0 || now - worker->started < options_.start_timeout) continue;
    } else if (options_.task_timeout.count() == 0 || worker->given.empty() ||
               now - worker->busy_since < options_.task_timeout) {
      continue;
    }
    worker->patience = Deadline::after(kPatience);
    worker->retiring = true;
    take_back(*worker, worker->given.size(), [&](Given&& given) { put_back(std::move(given)); });
    worker->process.send_signal(SIGABRT);
  }
}

void PoolCore::tell_of_stop() {
  if (stop_requests() == 0) return;
  for (const auto& worker : workers_) {
    if (std::exchange(worker->told_of_stop, true)) continue;
    worker->ends.progress->stop.store(1);
    // One that is not ready could not hold it: it finds the word. See serve_pool.
    if (worker->ends.progress->ready.load() != 0) worker->process.send_signal(SIGTERM);
  }
}

void PoolCore::look_after_workers() {
  looked_ = std::chrono::steady_clock::now();
  tell_of_stop();
  for (const auto& worker : workers_) worker->full = false;
  if (options_.task_timeout.count() != 0 || options_.start_timeout.count() != 0) end_stuck();
  if (missing_) refill();
  std::vector<pollfd> ends;
  ends.reserve(workers_.size());
  for (const auto& worker : workers_) ends.push_back({worker->process.sentinel(), POLLIN, 0});
  if (::poll(ends.data(), nfds_t(ends.size()), 0) <= 0) return;
  std::vector<std::unique_ptr<Worker>> dead;
  for (std::size_t i = 0; i < ends.size(); ++i)
    if (ends[i].revents != 0) {
      workers_[i]->process.join();  // gives back what it had, and makes the results that it sent whole
      workers_[i]->retiring = true;
    }
  // Before anybody is blamed: all that the dead have sent.
  while (take_results()) continue;
  for (std::size_t i = 0; i < ends.size(); ++i)
    if (ends[i].revents != 0) dead.push_back(std::move(workers_[i]));
  std::erase_if(workers_, [](const auto& worker) { return !worker; });
  for (const auto& worker : dead) handle_end(*worker);
}

void PoolCore::handle_end(Worker& worker) {
  std::shared_ptr<const ProcessFailed> failure;
  try {
    worker.process.result();
  } catch (const ProcessRaised& error) {
    failure = std::make_shared<ProcessRaised>(error);
  } catch (const ProcessExited& error) {
    failure = std::make_shared<ProcessExited>(error);
  }
  if (failure && on_death) on_death(*failure);
  const bool was_ready = worker.ends.progress->ready.load() != 0;
  // acquire: the process is gone, and this is the last that it wrote.
  const std::uint64_t running = worker.ends.progress->running.load(std::memory_order_acquire);
  for (Given& given : worker.given) {
    if (failure && given.number == running)
      lose(given, failure, worker);
    else
      put_back(std::move(given));
  }
  if (stopped_) {
    // By one that died at the same time: what this one had has no end otherwise.
    const std::exception_ptr error = stopped_;
    return stop(error);
  }
  if (!was_ready && failure) {
    const bool raised = dynamic_cast<const ProcessRaised*>(failure.get()) != nullptr;
    const auto* exited = dynamic_cast<const ProcessExited*>(failure.get());
    // Of SIGTERM dies a worker that was only just beginning when all of a job's processes got it.
    const bool was_ended = exited && exited->signal() == SIGTERM;
    if (raised || (!was_ended && ++failed_starts_ >= kMostFailedStarts))
      return stop(std::make_exception_ptr(
          PoolStopped(fmt::format("the pool's workers cannot start{}: {}; make a new pool when its cause is gone",
                                  worker.patience ? late_start(options_.start_timeout) : "", failure->what()))));
  }
  if (failure && ++deaths_ > options_.max_replacements && options_.max_replacements >= 0)
    return stop(std::make_exception_ptr(PoolStopped(
        fmt::format("{} of the pool's workers have died, more than max_replacements = {} allows; the last one: {}",
                    deaths_, options_.max_replacements, failure->what()))));
  refill();
}

void PoolCore::refill() {
  // The keeper cannot fork a process whose other threads run: a thread of the program's does at its next call.
  if (keeping_ && options_.start_method == StartMethod::fork && !options_.fork_despite_threads) {
    missing_ = true;
    return;
  }
  missing_ = false;
  const auto working = [&] { return std::ranges::count_if(workers_, [](const auto& one) { return !one->retiring; }); };
  while (!stopped_ && working() < options_.processes && !(closed_ && unanswered_ == 0)) try {
      start_worker();
    } catch (const std::exception& error) {
      // No processes or no memory to be had. Those that are left go on, and another try is made with the next look.
      missing_ = true;
      if (working() == 0)
        stop(std::make_exception_ptr(PoolStopped(fmt::format(
            "the pool has no worker left, and none can be started: {}; make a new pool when its cause is gone",
            error.what()))));
      return;
    }
}

void PoolCore::lose(const Given& given, const std::shared_ptr<const ProcessFailed>& failure, const Worker& worker) {
  const int deaths = given.job->count_death(given.task);
  if (options_.on_worker_death == OnWorkerDeath::retry && deaths <= options_.max_retries) return put_back(Given(given));
  --unanswered_;
  given.job->fail(given.task,
                  std::make_exception_ptr(WorkerDied(
                      failure, deaths,
                      {.number = given.task,
                       .of = given.job->tasks(),
                       .time_limit = worker.patience ? options_.task_timeout : std::chrono::nanoseconds(0)})));
}

}  // namespace shoal::detail
