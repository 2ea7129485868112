#include <shoal/internal/workers/train/hosts/last_moment.h>

#include <shoal/internal/ipc/fork/service_thread.h>

#include <chrono>
#include <system_error>
#include <utility>

namespace shoal {

LastMoment::LastMoment(int port, Deadline deadline) {
  start(deadline, [this, port] {
    sockets_.find(port);
    sockets_.shut_down();
  });
}

LastMoment::LastMoment(const OpenedSockets& sockets, Deadline deadline) {
  start(deadline, [&sockets] { sockets.shut_down(); });
}

void LastMoment::start(Deadline deadline, std::function<void()> end) {
  try {
    thread_ = make_service_thread("shoal-moment", [this, deadline, end = std::move(end)] {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, deadline.left(std::chrono::hours(24)), [this] { return done_; })) return;
      over_ = true;
      end();
    });
  } catch (const std::system_error&) {  // no thread is to be had
  }
}

LastMoment::~LastMoment() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace shoal
