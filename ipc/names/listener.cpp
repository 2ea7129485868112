#include <shoal/ipc/listener.h>

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/ipc/names/attach_protocol.h>
#include <shoal/internal/ipc/names/rendezvous.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace shoal {

struct Listener::State {
  std::string name;
  RendezvousFolder folder;
  OwnFile claim = {}, socket = {}, stop = {};
  std::atomic<bool> stops = false;
  std::thread thread = {};
  bool inherited = false;  // in a forked child
  State* next = nullptr;   // in the list of all

  void serve() const;
  void close_inherited();

  static constinit inline std::mutex mutex;  // of the list
  static constinit inline State* first = nullptr;
  static const AtFork at_fork;
};

[[gnu::init_priority(101)]] const AtFork Listener::State::at_fork({
    .before = &ForkWaitsFor<mutex>::lock,
    .in_parent = &ForkWaitsFor<mutex>::unlock,
    .in_child =
        []() noexcept {
          for (State* state = std::exchange(first, nullptr); state; state = state->next) state->close_inherited();
          ForkWaitsFor<mutex>::unlock();
        },
});

/// An open socket would keep the name answered, by nobody.
void Listener::State::close_inherited() {
  inherited = true;
  new (&thread) std::thread;  // the parent's has nothing to destroy here
  socket.reset();
  claim.reset();
  stop.reset();
}

void Listener::State::serve() const {
  constexpr int kLookAround = 1000;  // ms: by then it is noticed that the program has closed the descriptors
  // relaxed: the flag is all there is.
  while (!stops.load(std::memory_order_relaxed) && socket.is_open() && stop.is_open()) {
    std::array<pollfd, 2> waiting{pollfd{stop.descriptor_if_open(), POLLIN, 0},
                                  pollfd{socket.descriptor_if_open(), POLLIN, 0}};
    if (::poll(waiting.data(), waiting.size(), kLookAround) < 0 && errno != EINTR) return;
    if (waiting[0].revents != 0) return;
    if (waiting[1].revents == 0) continue;
    const Fd connection = lift(Fd(::accept4(socket.descriptor_if_open(), nullptr, nullptr, SOCK_CLOEXEC)));
    if (!connection) {
      // Out of descriptors: whoever connected keeps waiting, and this loop must not spin.
      if (errno != EINTR && errno != ECONNABORTED) ::poll(waiting.data(), 1, 100);
      continue;
    }
    // Looked at now: what the numbers were when listening began may be files of the program's by now.
    answer_attach(connection.get(), SessionCore::current().descriptors_if_open());
  }
}

Listener::Listener(const std::string& name) {
  RendezvousFolder::check_name(name);
  std::lock_guard lock(State::mutex);
  // A second claim by this process would not fail, since a record lock does not exclude its own process; and it would
  // drop the first one when its file is closed.
  for (const State* other = State::first; other; other = other->next)
    if (other->name == name)
      throw std::invalid_argument(fmt::format("this process listens under the name '{}' already", name));
  Session& session = Session::current();
  session.self();
  state_ = std::make_unique<State>(name, RendezvousFolder::open_or_make());
  State& state = *state_;
  state.claim = OwnFile(state.folder.claim(name), "a listener's claim");
  state.socket = OwnFile(state.folder.listen(name), "a listener's socket");
  Fd stop = lift(Fd(::eventfd(0, EFD_CLOEXEC)));
  if (!stop) throw SystemError("making an event descriptor", errno);
  state.stop = OwnFile(std::move(stop), "a listener's eventfd");
  try {
    state.thread = make_service_thread("shoal-listen", [&state] { state.serve(); });
  } catch (const std::system_error& error) {
    state.folder.remove(name);
    throw SystemError("starting the thread that listens", error.code().value());
  }
  state.next = std::exchange(State::first, &state);
}

Listener::Listener(Listener&&) noexcept = default;

Listener& Listener::operator=(Listener&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Listener::~Listener() {
  if (!state_ || state_->inherited) return;
  const std::uint64_t one = 1;
  state_->stops.store(true, std::memory_order_relaxed);  // relaxed: the flag is all there is
  if (const int stop = state_->stop.descriptor_if_open(); stop >= 0) (void)!::write(stop, &one, sizeof one);
  state_->thread.join();
  std::lock_guard lock(State::mutex);
  State** place = &State::first;
  while (*place != state_.get()) place = &(*place)->next;
  *place = state_->next;
  if (state_->claim.is_open()) state_->folder.remove(state_->name);  // while the name is still claimed
}

const std::string& Listener::name() const { return state_->name; }
std::string Listener::path() const { return state_->folder.path() + "/" + state_->name + ".sock"; }

}  // namespace shoal
