#include <shoal/internal/ipc/fork/service_thread.h>

#include <pthread.h>
#include <shoal/internal/ipc/base/stack_request.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace shoal {
namespace {

/// Lies in its thread's stack.
struct Entry {
  pid_t thread = ::gettid();
  Entry *before = nullptr, *next = nullptr;
};

constinit std::mutex mutex;  // of the list
constinit Entry* first = nullptr;

class Entered {
 public:
  Entered() {
    std::lock_guard lock(mutex);
    entry_.next = first;
    if (first) first->before = &entry_;
    first = &entry_;
  }
  ~Entered() {
    std::lock_guard lock(mutex);
    (entry_.before ? entry_.before->next : first) = entry_.next;
    if (entry_.next) entry_.next->before = entry_.before;
  }

 private:
  Entry entry_;
};

[[gnu::init_priority(101)]] const AtFork at_fork({
    .stage = ForkStage::kProcess,
    // Not waited for, as a thread that forks may be one of those that come and go; nothing is read of the entries.
    .in_child =
        []() noexcept {
          new (&mutex) std::mutex;
          first = nullptr;
        },
});

}  // namespace

std::thread make_service_thread(const char* name, std::function<void()> work) {
  auto entered = std::make_shared<std::atomic<bool>>(false);
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, kStackSignal);  // whoever looks on wants to see these threads, too
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread([name, work = std::move(work), entered] {
      ::pthread_setname_np(::pthread_self(), name);
      const Entered in_the_list;
      *entered = true;
      entered->notify_one();
      work();
    });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  entered->wait(false);
  return thread;
}

void start_service_thread(const char* name, std::function<void()> work) {
  make_service_thread(name, std::move(work)).detach();
}

bool is_service_thread(pid_t thread) noexcept {
  std::lock_guard lock(mutex);
  for (const Entry* each = first; each; each = each->next)
    if (each->thread == thread) return true;
  return false;
}

}  // namespace shoal
