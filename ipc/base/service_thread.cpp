#include <shoal/internal/ipc/base/service_thread.h>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>

namespace shoal {
namespace {

/// Never shrinks: the threads last as long as the process. A forked child, which has none, starts anew.
std::atomic<pid_t> ids[16];
std::atomic<pid_t> process{0};
std::atomic<std::size_t> used{0};

}  // namespace

void start_service_thread(std::function<void()> work) {
  if (process.exchange(::getpid()) != ::getpid()) {
    for (auto& id : ids) id = 0;
    used = 0;
  }
  const std::size_t place = used.fetch_add(1);
  if (place >= std::size(ids)) throw std::logic_error("shoal: more service threads than there are services");
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([work = std::move(work), place] {
    ids[place] = ::gettid();
    ids[place].notify_all();
    work();
  }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ids[place].wait(0);  // it can be told from the program's own threads as soon as it is there
}

bool is_service_thread(pid_t thread) noexcept {
  return std::any_of(std::begin(ids), std::end(ids), [&](auto& id) { return id.load() == thread; });
}

}  // namespace shoal
