#include <shoal/internal/workers/pool/pool_keeper.h>

#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/one_per_process.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/workers/pool/pool_core.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace shoal::detail {
namespace {

constexpr std::chrono::milliseconds kBetweenRounds{10};

class Keeper {
 public:
  Keeper() {
    start_service_thread("shoal-pools", [this] { run(); });
  }

  void add(std::weak_ptr<PoolCore> core) {
    {
      std::lock_guard lock(mutex_);
      added_.push_back(std::move(core));
    }
    changed_.notify_one();
  }

 private:
  [[noreturn]] void run() {
    std::vector<std::weak_ptr<PoolCore>> cores;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (cores.empty()) changed_.wait(lock, [&] { return !added_.empty(); });
        std::ranges::move(added_, std::back_inserter(cores));
        added_.clear();
        // Whoever adds one does not want it looked after at once.
        changed_.wait_for(lock, kBetweenRounds, [] { return false; });
      }
      std::erase_if(cores, [](const std::weak_ptr<PoolCore>& weak) {
        const std::shared_ptr<PoolCore> core = weak.lock();
        return !core || !keep(*core);
      });
    }
  }

  static bool keep(PoolCore& core) noexcept {
    try {
      return core.keep();
    } catch (...) {
      return true;  // no processes or no memory at the moment; whoever waits is told
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::weak_ptr<PoolCore>> added_;
};

constinit OnePerProcess<Keeper> the_keeper;

[[gnu::init_priority(101)]] const AtFork at_fork({
    .in_child = []() noexcept { the_keeper.forget(); },
});

}  // namespace

void keep_for(const std::shared_ptr<PoolCore>& core) { the_keeper.get().add(core); }

}  // namespace shoal::detail
