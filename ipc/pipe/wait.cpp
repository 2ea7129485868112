#include <shoal/ipc/wait.h>

#include <fmt/format.h>
#include <poll.h>
#include <shoal/internal/ipc/pipe/core.h>
#include <shoal/internal/ipc/pipe/readiness.h>
#include <shoal/internal/ipc/wait/wait.h>
#include <shoal/internal/ipc/wait/wait_any.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

namespace shoal {

AnyConnection::Core& Waitable::core(std::size_t index) const {
  AnyConnection::Core& core = connection_->core("wait");
  if (!core.in) throw std::invalid_argument(fmt::format("wait: connection {} only sends", index));
  return core;
}

std::vector<std::size_t> Waitable::wait_for_connections(std::span<const Waitable> things, Deadline deadline) {
  std::vector<std::size_t> ready;
  if (things.empty()) return ready;
  std::vector<PreparedEvent> events;
  Sleeper<ThisProcess> sleeper;
  auto look = [&](bool prepare) {
    ready.clear();
    events.clear();
    for (std::size_t i = 0; i < things.size(); ++i) {
      AnyConnection::Core& core = things[i].core(i);
      EventWord& event = core.in->message_event();
      if (prepare) events.push_back({&event, event.prepare()});
      if (core.in->is_ready()) ready.push_back(i);
    }
    return !ready.empty();
  };
  for (;;) {
    if (look(false) || deadline.passed()) break;
    if (sleeper.spins()) continue;
    if (look(true)) break;
    // End of file by a death: whoever finds it, this thread or another, closes the ring, which wakes those that wait.
    sleeper.sleep_on(events.front().event, deadline, [&](auto at_most) {
      sleep_on_any(events, at_most);
      for (const PreparedEvent& prepared : events) prepared.event->leave();
      // Nothing is taken here: somebody else who sleeps may receive it.
      for (std::size_t i = 0; i < events.size(); ++i)
        if (things[i].core(i).in->is_ready()) events[i].event->notify_one();
    });
  }
  sleeper.ended();
  return ready;
}

/// The kernel waits for the descriptors; connections are asked directly, as their descriptors follow a moment later.
std::vector<std::size_t> Waitable::wait_for_descriptors(std::span<const Waitable> things, Deadline deadline) {
  std::vector<pollfd> polled;
  for (const Waitable& thing : things)
    polled.push_back({thing.connection_ ? thing.connection_->fileno() : thing.descriptor_, POLLIN, 0});
  std::vector<std::size_t> ready;
  auto look = [&] {
    for (std::size_t i = 0; i < things.size(); ++i) {
      if (polled[i].revents & POLLNVAL || polled[i].fd < 0)
        throw std::invalid_argument(fmt::format("wait: descriptor {} is not open", polled[i].fd));
      if (!things[i].connection_) {
        if (polled[i].revents != 0) ready.push_back(i);
        continue;
      }
      AnyConnection::Core& core = things[i].core(i);
      if (core.in->is_ready())
        ready.push_back(i);
      else if (polled[i].revents != 0)
        ReadinessWatch::look_again(core);  // another process took the message
    }
    return !ready.empty();
  };
  for (bool first = true;; first = false) {
    const auto left = first ? std::chrono::nanoseconds(0) : deadline.left(std::chrono::hours(1));
    const timespec limit{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    if (::ppoll(polled.data(), polled.size(), &limit, nullptr) < 0) {
      if (errno != EINTR) throw SystemError(fmt::format("waiting for {} descriptors", polled.size()), errno);
      for (pollfd& entry : polled) entry.revents = 0;
    }
    if (look() || deadline.passed()) return ready;
  }
}

std::vector<std::size_t> wait(std::span<const Waitable> things, Deadline deadline) {
  const bool all_connected = std::ranges::all_of(things, [](const Waitable& thing) { return thing.connection_; });
  return all_connected ? Waitable::wait_for_connections(things, deadline)
                       : Waitable::wait_for_descriptors(things, deadline);
}

}  // namespace shoal
