#include <shoal/internal/workers/pool/pool_core.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/internal/runtime/crash/raised.h>
#include <shoal/internal/workers/pool/pool_keeper.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/stop.h>
#include <shoal/workers/pool_failure.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <ranges>
#include <stdexcept>
#include <thread>
#include <utility>

namespace shoal::detail {
namespace {

using std::chrono::milliseconds;

/// As much work as a worker should have in front of it.
constexpr double kNanosecondsAhead = 300'000;
/// The same while nobody waits, so that nobody gives out tasks but the keeper: more than two of its rounds.
constexpr double kNanosecondsAheadOfKeeper = 25'000'000;
constexpr std::uint32_t kMostResults = 4096;
/// How often the dead are looked for while results come in.
constexpr milliseconds kBetweenLooks{100};
/// How often join() looks for workers that have ended.
constexpr milliseconds kBetweenJoins{10};
/// While tasks could be taken back from busy workers: how long the pool waits for results before it does.
constexpr milliseconds kBeforeTakingBack{1};

PoolOptions checked(PoolOptions options) {
  check_initialized();
  if (options.processes < 0)
    throw std::invalid_argument(fmt::format(
        "PoolOptions::processes is {}: give the number of workers, or 0 for one each CPU", options.processes));
  if (options.max_tasks_per_child < 0)
    throw std::invalid_argument(
        fmt::format("PoolOptions::max_tasks_per_child is {}: give a number of tasks, or 0 for no limit",
                    options.max_tasks_per_child));
  if (options.max_retries < 0)
    throw std::invalid_argument(
        fmt::format("PoolOptions::max_retries is {}: give how often a lost task is run again", options.max_retries));
  if (options.tasks_ahead < 2 || options.tasks_ahead > int(kMostResults))
    throw std::invalid_argument(
        fmt::format("PoolOptions::tasks_ahead is {}: give 2 to {}", options.tasks_ahead, kMostResults));
  if (options.task_timeout.count() < 0)
    throw std::invalid_argument(fmt::format("PoolOptions::task_timeout is {} ns: give a time, or 0 for no limit",
                                            options.task_timeout.count()));
  if (options.start_timeout.count() < 0)
    throw std::invalid_argument(fmt::format("PoolOptions::start_timeout is {} ns: give a time, or 0 for no limit",
                                            options.start_timeout.count()));
  if (options.processes == 0) options.processes = usable_cpus();
  options.num_threads = thread_share(options.processes, options.num_threads);
  return options;
}

std::exception_ptr stopped_error(const char* why) {
  return std::make_exception_ptr(PoolStopped(fmt::format("the pool {}: there will be no result", why)));
}

}  // namespace

PoolCore::PoolCore(const PoolOptions& options, StartWorker start)
    : options_(checked(options)),
      start_(std::move(start)),
      results_(Ring::create(std::min(kMostResults, std::uint32_t(options_.processes * options_.tasks_ahead)),
                            kResultSchema, 0, options_.name + " results")) {
  workers_.reserve(std::size_t(options_.processes));
  try {
    for (int i = 0; i < options_.processes; ++i) start_worker();
  } catch (...) {
    terminate();  // all at once: a worker that is ready waits for its pool's word, and else for the end of its grace period
    throw;
  }
}

// ---------------------------------------------------------------- tasks out

void PoolCore::submit(std::shared_ptr<Job> job, Awaited awaited) {
  check_owner();
  Lock lock(mutex_);
  if (stopped_) std::rethrow_exception(stopped_);
  if (closed_) throw PoolStopped("the pool was closed: it takes no more tasks");
  unanswered_ += job->unfinished();
  jobs_.push_back(std::move(job));
  // A flood of tasks that nobody waits for yet goes on at full speed.
  if (!leading_) take_results();
  if (missing_) refill();
  give_tasks();
  if (awaited == Awaited::kNow || kept_ || unanswered_ == 0) return;
  kept_ = true;
  lock.unlock();
  keep_for(shared_from_this());
}

std::size_t PoolCore::depth(Until until) const {
  if (nanoseconds_ < 1) return 2;  // nothing is known yet
  const double ahead = until == Until::kNextRound ? kNanosecondsAheadOfKeeper : kNanosecondsAhead;
  return std::clamp<std::size_t>(std::size_t(ahead / nanoseconds_), 2, std::size_t(options_.tasks_ahead));
}

/// The one with the fewest tasks; of several the one that has worked last, whose caches are warm and who may not sleep
/// yet.
PoolCore::Worker* PoolCore::free_worker(std::size_t depth) {
  Worker* best = nullptr;
  for (const auto& worker : workers_) {
    if (worker->retiring || worker->full || worker->given.size() >= depth) continue;
    if (!best || worker->given.size() < best->given.size() ||
        (worker->given.size() == best->given.size() && worker->last_answer > best->last_answer))
      best = worker.get();
  }
  return best;
}

PoolCore::Worker* PoolCore::worker_for(const Job& job, std::size_t depth) {
  if (job.wanted_worker < 0) return free_worker(depth);
  bool comes = false;
  for (const auto& worker : workers_) {
    if (worker->index != job.wanted_worker) continue;
    if (!worker->retiring) return worker->given.size() < depth && !worker->full ? worker.get() : nullptr;
    comes = true;  // when the end of this one is handled
  }
  return comes ? nullptr : free_worker(depth);
}

void PoolCore::give_tasks(Until until) {
  tell_of_stop();
  const std::size_t depth = this->depth(until);
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    if (!(*next)->has_next()) {
      next = jobs_.erase(next);
      continue;
    }
    Worker* worker = worker_for(**next, depth);
    if (worker) {
      // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the job outlives its place in jobs_.
      const std::shared_ptr<Job> job = *next;
      give(*worker, job, job->take_next());
    } else if ((*next)->wanted_worker >= 0) {
      ++next;  // those behind it may be for others
    } else {
      return;
    }
  }
}

void PoolCore::give(Worker& worker, const std::shared_ptr<Job>& job, std::size_t task) {
  const std::uint64_t number = tasks_ + 1;
  RingStatus status = RingStatus::kDone;
  try {
    Encoder message;
    message.write(TaskHeader{number});
    names_.write(message, reinterpret_cast<AnyFunction>(job->entry()));
    names_.write(message, job->function());
    job->encode_arguments(task, message);
    status = worker.ends.tasks.put(message, Deadline::now());
  } catch (...) {
    // Arguments that cannot cross, or no memory for them: that task's result.
    --unanswered_;
    job->fail(task, std::current_exception());
    return;
  }
  if (status != RingStatus::kDone) {
    // Full: the worker was stopped while it took a task, and the cell is not free yet. Or nobody reads there any more:
    // looked after in a moment. Until then it gets nothing.
    (status == RingStatus::kTimedOut ? worker.full : worker.retiring) = true;
    put_back({0, job, task});
    return;
  }
  tasks_ = number;
  if (worker.given.empty() && options_.task_timeout.count() != 0) worker.busy_since = std::chrono::steady_clock::now();
  worker.given.push_back({number, job, task});
  ++worker.given_ever;
  if (options_.max_tasks_per_child == 0 || worker.given_ever < options_.max_tasks_per_child) return;
  // It ends when it has done these; the next one starts meanwhile.
  worker.retiring = true;
  worker.ends.tasks.close();
  try {
    start_worker();
  } catch (const Error&) {
    // Tried again when that one has ended.
  }
}

// ---------------------------------------------------------------- results in

bool PoolCore::take_results() {
  // As many as fit into the ring at once: whoever waits for one of them is to hear of it.
  std::uint32_t left = results_.capacity();
  for (; left != 0; --left) {
    Received message;
    const RingStatus status = results_.get(message, Deadline::now());
    if (status == RingStatus::kPeersDied) looked_ = {};  // it is time to look
    if (status != RingStatus::kDone) break;
    take_result(std::move(message).decoder());
  }
  return left != results_.capacity();
}

void PoolCore::take_result(Decoder result) {
  const auto header = result.read<ResultHeader>();
  const auto found =
      std::ranges::find_if(workers_, [&](const auto& worker) { return worker->ends.worker == header.worker; });
  if (found == workers_.end()) return;
  Worker& worker = **found;
  const auto given = std::ranges::find_if(worker.given, [&](const Given& one) { return one.number == header.task; });
  if (given == worker.given.end()) return;
  const std::shared_ptr<Job> job = std::move(given->job);
  const std::size_t task = given->task;
  worker.given.erase(given);
  worker.last_answer = ++answers_;
  worker.full = false;
  if (options_.task_timeout.count() != 0) worker.busy_since = std::chrono::steady_clock::now();
  failed_starts_ = 0;
  if (header.nanoseconds_before != 0) {
    constexpr double kWeight = 1.0 / 16;
    nanoseconds_ += kWeight * (double(header.nanoseconds_before) - nanoseconds_);
  }
  --unanswered_;
  job->answered_by = {header.worker, worker.process.pid()};
  if (header.raised == 0) return job->succeed(task, result);
  try {
    const ProcessIdentity who{worker.process.name(), -1, worker.process.pid(), options_.start_method};
    const auto failure = make_failure(who, decode<RaisedException>(result));
    job->fail(task, std::make_exception_ptr(dynamic_cast<const ProcessRaised&>(*failure)));
  } catch (...) {
    job->fail(task, std::current_exception());
  }
}

// ---------------------------------------------------------------- tasks taken back

bool PoolCore::could_take_back() const {
  const auto any = [&](auto&& is) { return std::ranges::any_of(workers_, is); };
  return jobs_.empty() && any([](const auto& worker) { return !worker->retiring && worker->given.empty(); }) &&
         any([](const auto& worker) {
           return worker->given.size() >= 2 && worker->given.back().job->wanted_worker < 0;
         });
}

bool PoolCore::take_back_waiting() {
  if (!could_take_back()) return false;
  const auto most = std::ranges::max_element(
      workers_, [](const auto& one, const auto& other) { return one->given.size() < other->given.size(); });
  // Half of them, the ones that it would do next: the message is dropped, and written anew for the other one.
  return take_back(**most, (*most)->given.size() / 2, [&](Given&& given) { put_back(std::move(given)); }) != 0;
}

/// A task that its worker has not done is for another one, or for nobody.
void PoolCore::put_back(Given&& given) {
  if (given.job->is_unwanted()) {
    --unanswered_;
    given.job->fail(given.task, stopped_error("was told to forget it"));
    return;
  }
  given.job->run_again(given.task);
  jobs_.push_front(std::move(given.job));
}

std::size_t PoolCore::take_back(Worker& worker, std::size_t most, const std::function<void(Given&&)>& taken) {
  std::size_t count = 0;
  while (count < most) {
    Received message;
    if (worker.ends.tasks.get(message, Deadline::now()) != RingStatus::kDone) break;
    const std::uint64_t number = std::move(message).decoder().read<TaskHeader>().task;
    const auto found = std::ranges::find_if(worker.given, [&](const Given& one) { return one.number == number; });
    if (found == worker.given.end()) continue;
    Given given = std::move(*found);
    worker.given.erase(found);
    taken(std::move(given));
    ++count;
  }
  return count;
}

// ---------------------------------------------------------------- those that wait

void PoolCore::work(Lock& lock, const std::function<bool()>& ready, Deadline deadline) {
  for (;;) {
    const bool some = take_results();
    give_tasks();
    if (some && followers_ > 0) led_.notify_all();
    if (ready() || deadline.passed()) return;
    if (std::chrono::steady_clock::now() - looked_ > kBetweenLooks) {
      look_after_workers();
      continue;
    }
    const auto longest = deadline.left(could_take_back() ? kBeforeTakingBack : kBetweenLooks);
    lock.unlock();
    const RingStatus status = results_.wait_for_message(Deadline::after(longest));
    lock.lock();
    if (status == RingStatus::kTimedOut) take_back_waiting();
  }
}

bool PoolCore::wait(const std::function<bool()>& ready, Deadline deadline) {
  check_owner();
  Lock lock(mutex_);
  for (;;) {
    if (ready()) return true;
    if (leading_) {
      if (deadline.passed()) return false;
      ++followers_;
      led_.wait_for(lock, deadline.left(kBetweenLooks));
      --followers_;
      continue;
    }
    leading_ = true;
    try {
      work(lock, ready, deadline);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      leading_ = false;
      led_.notify_all();
      throw;
    }
    leading_ = false;
    if (followers_ > 0) led_.notify_all();
    if (!ready() && deadline.passed()) return false;
  }
}

bool PoolCore::keep() {
  Lock lock(mutex_);
  if (!leading_) {
    keeping_ = true;
    try {
      take_results();
      give_tasks(Until::kNextRound);
      take_back_waiting();
      if (std::chrono::steady_clock::now() - looked_ > kBetweenLooks) look_after_workers();
      give_tasks(Until::kNextRound);
    } catch (...) {
      keeping_ = false;
      throw;
    }
    keeping_ = false;
    if (followers_ > 0) led_.notify_all();
  }
  kept_ = unanswered_ > 0;
  return kept_;
}

void PoolCore::abandon(const std::shared_ptr<Request>& job) {
  if (!is_own()) return;  // a forked copy: the mutex may have been locked at the fork
  Lock lock(mutex_);
  unanswered_ -= job->drop_rest();
  // What lies in a ring before and behind the job's is written anew.
  std::vector<Given> waiting;
  for (const auto& worker : workers_)
    if (std::ranges::any_of(worker->given, [&](const Given& given) { return given.job == job; }))
      take_back(*worker, worker->given.size(), [&](Given&& given) { waiting.push_back(std::move(given)); });
  for (Given& given : std::views::reverse(waiting)) put_back(std::move(given));  // the first one to the front
}

void PoolCore::abandon_all() {
  if (!is_own()) return;  // as above; and what lies in the rings is the parent's
  Lock lock(mutex_);
  for (const auto& job : jobs_) unanswered_ -= job->drop_rest();
  for (const auto& worker : workers_) {
    for (const Given& given : worker->given) unanswered_ -= given.job->drop_rest();
    take_back(*worker, worker->given.size(), [&](Given&& given) { put_back(std::move(given)); });
  }
  jobs_.clear();
}

// ---------------------------------------------------------------- the end

void PoolCore::close() {
  check_owner();
  Lock lock(mutex_);
  closed_ = true;
}

bool PoolCore::join(Deadline deadline) {
  check_owner();
  {
    Lock lock(mutex_);
    if (!closed_ && !stopped_)
      throw std::invalid_argument(
          "Pool::join: call close() first, or terminate(): a pool that takes tasks does not end");
  }
  if (!wait([&] { return unanswered_ == 0; }, deadline)) return false;
  // Without the mutex while a worker takes its time to end: terminate() of another thread ends it.
  for (milliseconds pause{1};; pause = std::min(2 * pause, kBetweenJoins)) {
    {
      Lock lock(mutex_);
      for (const auto& worker : workers_) worker->ends.tasks.close();
      std::erase_if(workers_, [](const auto& worker) { return worker->process.join(milliseconds(0)); });
      if (workers_.empty()) return true;
    }
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(deadline.left(pause));
  }
}

void PoolCore::stop(const std::exception_ptr& error) {
  stopped_ = error;
  // Every task that has no result fails, whether a worker has it or not.
  auto fail_rest = [&](const std::shared_ptr<Job>& job) {
    while (job->has_next()) {
      --unanswered_;
      job->fail(job->take_next(), error);
    }
  };
  for (const auto& job : jobs_) fail_rest(job);
  jobs_.clear();
  for (const auto& worker : workers_) {
    for (const Given& given : worker->given) {
      fail_rest(given.job);
      --unanswered_;
      given.job->fail(given.task, error);
    }
    worker->given.clear();
    worker->retiring = true;
  }
  led_.notify_all();
}

void PoolCore::terminate() noexcept {
  // A forked copy has no say in this, and whoever had the mutex when it was forked is not there to unlock it.
  if (!is_own()) return;
  std::vector<std::unique_ptr<Worker>> workers;
  {
    Lock lock(mutex_);
    if (!stopped_) stop(stopped_error("was terminated"));
    workers.swap(workers_);
  }
  for (const auto& worker : workers) {
    worker->ends.progress->end.store(1);
    worker->ends.tasks.close();  // wakes one that asks stop_requested(), which SIGTERM does not end
    worker->process.terminate();
  }
  // One time for all of them together.
  const Deadline deadline = Deadline::after(kGracePeriod);
  for (const auto& worker : workers)
    if (!worker->process.join(deadline.left(kGracePeriod))) worker->process.kill();
}

}  // namespace shoal::detail
