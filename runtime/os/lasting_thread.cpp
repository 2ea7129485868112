#include <shoal/internal/runtime/os/lasting_thread.h>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace shoal {
namespace {

/// Belongs to one process: a forked child has a copy with locks that nobody will ever open, and makes
/// its own. Never destroyed, since its thread never ends.
struct LastingThread {
  const pid_t process = ::getpid();
  std::atomic<pid_t> thread{0};
  std::mutex turn;  // one caller at a time
  std::mutex mutex;
  std::condition_variable changed;
  const std::function<void()>* work = nullptr;
  bool done = false;
  std::exception_ptr error;

  void serve() {
    thread = ::gettid();
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

  void start() {
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { serve(); }).detach();
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
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

std::atomic<LastingThread*> instance{nullptr};

LastingThread& lasting_thread() {
  LastingThread* current = instance.load();
  if (current && current->process == ::getpid()) return *current;
  auto* fresh = new LastingThread;
  if (instance.compare_exchange_strong(current, fresh)) {
    fresh->start();
    return *fresh;
  }
  delete fresh;  // another thread was first
  return *current;
}

}  // namespace

void in_lasting_thread(const std::function<void()>& work) {
  if (::gettid() == ::getpid())
    work();
  else
    lasting_thread().run(work);
}

pid_t lasting_thread_id() noexcept {
  LastingThread* current = instance.load();
  return current && current->process == ::getpid() ? current->thread.load() : 0;
}

}  // namespace shoal
