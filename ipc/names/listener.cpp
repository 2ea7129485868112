#include <shoal/ipc/listener.h>

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <shoal/internal/ipc/names/attach_protocol.h>
#include <shoal/internal/ipc/names/rendezvous.h>
#include <shoal/internal/ipc/process/at_fork.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <stdexcept>
#include <vector>

namespace shoal {

struct Listener::State {
  std::string name;
  RendezvousFolder folder;
  Fd claim, socket, stop;
  pthread_t thread{};
  std::atomic<pid_t> thread_id{0};
  bool inherited = false;  // in a forked child

  static void* serve(void* self);
};

namespace {
std::mutex mutex;
}

std::vector<Listener::State*>& Listener::all() {
  static auto* listeners = new std::vector<State*>;  // never destroyed: a Listener may be static
  return *listeners;
}

void* Listener::State::serve(void* self) {
  auto& state = *static_cast<State*>(self);
  ::pthread_setname_np(::pthread_self(), "shoal-listen");
  state.thread_id = ::gettid();
  state.thread_id.notify_one();
  for (;;) {
    std::array<pollfd, 2> waiting{pollfd{state.stop.get(), POLLIN, 0}, pollfd{state.socket.get(), POLLIN, 0}};
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return nullptr;
    if (waiting[0].revents != 0) return nullptr;
    if (waiting[1].revents == 0) continue;
    const Fd connection = lift(Fd(::accept4(state.socket.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    if (!connection) {
      // Out of descriptors: whoever connected keeps waiting, and this loop must not spin.
      if (errno != EINTR && errno != ECONNABORTED) ::poll(waiting.data(), 1, 100);
      continue;
    }
    // Looked at now: what the numbers were when listening began may be files of the program's by now.
    answer_attach(connection.get(), Session::current().descriptors_if_open());
  }
}

Listener::Listener(const std::string& name) {
  RendezvousFolder::check_name(name);
  static constexpr AtFork kSteps{.in_child = &Listener::after_fork};
  at_fork(kSteps);
  std::lock_guard lock(mutex);
  // A second claim by this process would not fail, since a record lock does not exclude its own process; and it would
  // drop the first one when its file is closed.
  for (const State* other : all())
    if (other->name == name)
      throw std::invalid_argument(fmt::format("this process listens under the name '{}' already", name));
  Session& session = Session::current();
  session.self();
  state_.reset(new State{name, RendezvousFolder::open_or_make(), {}, {}, {}});
  State& state = *state_;
  all().reserve(all().size() + 1);
  state.claim = state.folder.claim(name);
  state.socket = state.folder.listen(name);
  state.stop = lift(Fd(::eventfd(0, EFD_CLOEXEC)));
  if (!state.stop) throw SystemError("making an event descriptor", errno);
  // Signals are for the program's own threads.
  sigset_t every, before;
  sigfillset(&every);
  ::pthread_sigmask(SIG_SETMASK, &every, &before);
  const int error = ::pthread_create(&state.thread, nullptr, &State::serve, &state);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    state.folder.remove(name);
    throw SystemError("starting the thread that listens", error);
  }
  state.thread_id.wait(0);  // so that a fork from here on knows whose thread it is
  all().push_back(&state);
}

Listener::Listener(Listener&&) noexcept = default;

Listener& Listener::operator=(Listener&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Listener::~Listener() {
  if (!state_ || state_->inherited) return;
  const std::uint64_t one = 1;
  (void)!::write(state_->stop.get(), &one, sizeof one);
  ::pthread_join(state_->thread, nullptr);
  std::lock_guard lock(mutex);
  std::erase(all(), state_.get());
  state_->folder.remove(state_->name);  // while the name is still claimed
}

const std::string& Listener::name() const { return state_->name; }
std::string Listener::path() const { return state_->folder.path() + "/" + state_->name + ".sock"; }

void Listener::after_fork() noexcept {
  // One thread, and the mutex may have been another's. An open socket would keep the name answered, by nobody.
  new (&mutex) std::mutex;
  for (State* state : all()) {
    state->inherited = true;
    state->socket.reset();
    state->claim.reset();
    state->stop.reset();
  }
  all().clear();
}

bool Listener::is_thread_of_one(pid_t thread) noexcept {
  std::lock_guard lock(mutex);
  return std::any_of(all().begin(), all().end(), [&](const State* state) { return state->thread_id == thread; });
}

}  // namespace shoal
