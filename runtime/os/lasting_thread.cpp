#include <shoal/internal/runtime/os/lasting_thread.h>

#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/one_per_process.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

namespace shoal {
namespace {

struct LastingThread {
  std::mutex turn;  // one caller at a time
  std::mutex mutex;
  std::condition_variable changed;
  const std::function<void()>* work = nullptr;
  bool done = false;
  std::exception_ptr error;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return work != nullptr; });
      try {
        (*work)();
      } catch (...) {
        error = std::current_exception();
      }
      work = nullptr;
      done = true;
      changed.notify_all();
    }
  }

  LastingThread() {
    start_service_thread("shoal-lasting", [this] { serve(); });
  }

  void run(const std::function<void()>& what) {
    std::lock_guard one(turn);
    std::unique_lock lock(mutex);
    work = &what;
    done = false;
    changed.notify_all();
    changed.wait(lock, [&] { return done; });
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }
};

constinit OnePerProcess<LastingThread> lasting_thread;

[[gnu::init_priority(101)]] const AtFork threads_at_fork({
    .in_child = []() noexcept { lasting_thread.forget(); },
});

}  // namespace

void in_lasting_thread(const std::function<void()>& work) {
  if (::gettid() == ::getpid())
    work();
  else
    lasting_thread.get().run(work);
}

}  // namespace shoal
