// What a pool does, whatever the types of its tasks.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/pool/function_name.h>
#include <shoal/internal/workers/pool/host.h>
#include <shoal/internal/workers/pool/pool_job.h>
#include <shoal/internal/workers/pool/pool_protocol.h>
#include <shoal/runtime/process.h>
#include <shoal/workers/pool_options.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace shoal::detail {

/// The pool's side of its workers. Whoever waits for a result does the pool's work meanwhile: takes in results, gives
/// out tasks, looks after the dead. One thread at a time does; the others wait for it. While nobody waits, the keeper
/// does, a hundred times a second (see pool_keeper.h).
///
/// Each worker has a ring of its own, so the pool knows which tasks a worker has, and from ProgressLayout which one it
/// had begun: that one is lost if it dies, the others are given to others. A task that waits behind a long one, while
/// another worker has nothing to do, is taken back and given to that one.
///
/// Belongs to the process that made it. Threads: any, at once. Workers die with this process.
class PoolCore final : public Host, public std::enable_shared_from_this<PoolCore> {
 public:
  using StartWorker = std::function<Process<ServedAll>(const ProcessOptions& options, const WorkerEnds& ends)>;

  /// Throws what starting a worker throws, when those that had started have ended.
  PoolCore(const PoolOptions& options, StartWorker start);
  ~PoolCore() override { terminate(); }

  int size() const override { return options_.processes; }
  /// The pids of the workers that live. Looks after the dead first, if nobody else does. Throws std::invalid_argument
  /// in a forked copy.
  std::vector<int> pids();

  using Awaited = detail::Awaited;
  /// Throws std::invalid_argument, PoolStopped.
  void submit(std::shared_ptr<Job> job, Awaited awaited);
  /// Does the pool's work until ready() is true, asked under the mutex. False at the deadline.
  bool wait(const std::function<bool()>& ready, Deadline deadline) override;
  std::mutex& mutex() override { return mutex_; }
  /// For the keeper: does what is to be done now, without waiting for anything. False if the pool needs no keeper
  /// until the next submit().
  bool keep();
  void abandon(const std::shared_ptr<Request>& job) override;
  /// Gives up all jobs, also what is in workers' rings. What runs is not run again. Does nothing in a forked copy.
  void abandon_all();
  /// Called, under the mutex, with how a worker died that ended otherwise than by returning.
  std::function<void(const ProcessFailed&)> on_death;

  void close();
  bool join(Deadline deadline);
  void terminate() noexcept;

 private:
  struct Given {
    std::uint64_t number;
    std::shared_ptr<Job> job;
    std::size_t task;
  };
  struct Worker {
    Worker(WorkerEnds its, Process<ServedAll> its_process)
        : ends(std::move(its)), process(std::move(its_process)), index(ends.index) {}
    WorkerEnds ends;
    Process<ServedAll> process;
    const int index;          // its predecessor's, if it replaced one
    std::deque<Given> given;  // not answered yet, in the order of its ring
    std::int64_t given_ever = 0;
    std::uint64_t last_answer = 0;
    const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point busy_since;  // with its first task
    std::optional<Deadline> patience;                  // after SIGABRT
    bool retiring = false;                             // gets no more
    bool full = false;                                 // its ring, when a task was to go there last
    bool told_of_stop = false;
  };
  /// How long the workers' work is to last that is in front of them.
  enum class Until { kNextAnswer, kNextRound };
  using Lock = std::unique_lock<std::mutex>;
  /// Between SIGTERM and SIGKILL, when the pool is terminated: for a task that asks stop_requested().
  static constexpr std::chrono::milliseconds kGracePeriod{2000};

  void start_worker();
  int free_index() const;
  std::size_t depth(Until until) const;
  bool take_results();
  void take_result(Decoder result);
  void give_tasks(Until until = Until::kNextAnswer);
  void give(Worker& worker, const std::shared_ptr<Job>& job, std::size_t task);
  void put_back(Given&& given);
  Worker* worker_for(const Job& job, std::size_t depth);
  Worker* free_worker(std::size_t depth);
  bool could_take_back() const;
  bool take_back_waiting();
  std::size_t take_back(Worker& worker, std::size_t most, const std::function<void(Given&&)>& taken);
  void look_after_workers();
  void end_stuck();
  void tell_of_stop();
  void handle_end(Worker& worker);
  void refill();
  void lose(const Given& given, const std::shared_ptr<const ProcessFailed>& failure, const Worker& worker);
  void stop(const std::exception_ptr& error);
  void work(Lock& lock, const std::function<bool()>& ready, Deadline deadline);

  const PoolOptions options_;
  const StartWorker start_;

  std::mutex mutex_;  // of everything below
  std::condition_variable led_;
  bool leading_ = false;
  int followers_ = 0;
  Ring results_;
  FunctionNames names_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::deque<std::shared_ptr<Job>> jobs_;  // that have tasks to be given out
  std::uint64_t tasks_ = 0, answers_ = 0;
  std::size_t unanswered_ = 0;  // tasks that were asked for and have no result
  std::uint32_t started_ = 0;
  int failed_starts_ = 0;  // one after the other
  int deaths_ = 0;
  double nanoseconds_ = 0;  // that a task takes, lately
  std::chrono::steady_clock::time_point looked_;
  bool closed_ = false, kept_ = false;
  bool keeping_ = false;  // the keeper is at it
  bool missing_ = false;  // a worker that could not be started
  std::exception_ptr stopped_;
};

}  // namespace shoal::detail
