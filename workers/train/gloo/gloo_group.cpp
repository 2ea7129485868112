#include <shoal/internal/workers/train/gloo/gloo_group.h>

#include <ATen/ops/from_blob.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/workers/train/gloo/gloo_backend.h>
#include <shoal/ipc/error.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

namespace shoal {
namespace {

std::chrono::milliseconds left_of(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left(std::chrono::hours(24)));
  return std::max(left, std::chrono::milliseconds(1));
}

/// The first line of Gloo's text, without the place in Gloo's sources that it begins with.
GlooFailure failure_of(int peer, const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (const auto place = text.find("] "); text.starts_with('[') && place != std::string::npos)
    text = text.substr(place + 2);
  // What it adds for people who look into Python's logs.
  text = text.substr(0, text.find(". This is typically"));
  auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  const auto why = text.starts_with("Timed out waiting") ? GlooFailure::late
                   : has("Connection timed out") || has("No route to host") || has("Network is unreachable")
                       ? GlooFailure::unreachable
                       : GlooFailure::ended;
  return GlooFailure(peer, why, text);
}

at::Tensor bytes_at(const void* data, std::size_t bytes) {
  // Gloo reads it where it is sent, and c10d has no form of that for memory that is const.
  return at::from_blob(const_cast<void*>(data), {std::int64_t(bytes)}, at::kByte);
}

c10::intrusive_ptr<c10d::ProcessGroupGloo> connect(const c10::intrusive_ptr<c10d::Store>& store, int index, int size,
                                                   const std::string& address, std::chrono::milliseconds timeout) {
  ignore_broken_pipes();
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  // By address: the default asks for the host's name, which is 127.0.1.1 on many machines.
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  options->threads = 1;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, index, size, options);
}

/// A call of connect() that another thread makes. Whoever waits for it may leave it alone.
class Connecting {
 public:
  using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

  /// Throws what connect() throws.
  static Group wait(std::function<Group()> connect, const GlooGroup::Look& look) {
    const auto under_way = std::make_shared<Connecting>();
    sigset_t signals;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &signals);
    make_service_thread("gloo connects", [under_way, connect = std::move(connect), signals] {
      ::pthread_sigmask(SIG_SETMASK, &signals, nullptr);  // what Gloo's own threads inherit
      under_way->finish(connect);
    }).detach();
    const auto finished = [&] { return under_way->finished_; };
    std::chrono::milliseconds pause = kFirstLook;
    std::unique_lock lock(under_way->mutex_);
    while (!under_way->changed_.wait_for(lock, pause, finished)) {
      lock.unlock();
      pause = look();
      lock.lock();
    }
    if (under_way->error_) std::rethrow_exception(under_way->error_);
    return std::move(under_way->group_);
  }

 private:
  static constexpr std::chrono::milliseconds kFirstLook{20};  // mostly it is done by then

  void finish(const std::function<Group()>& connect) {
    Group group;
    std::exception_ptr error;
    try {
      group = connect();
    } catch (...) {
      error = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    group_ = std::move(group);
    error_ = error;
    finished_ = true;
    changed_.notify_one();
  }

  std::mutex mutex_;  // of these:
  std::condition_variable changed_;
  bool finished_ = false;
  Group group_;
  std::exception_ptr error_;
};

}  // namespace

struct GlooGroup::Engine {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
};

namespace {
c10d::Work& work_of(const GlooGroup::Pending& pending) {
  return **std::static_pointer_cast<c10::intrusive_ptr<c10d::Work>>(pending.work);
}
}  // namespace

/// A wait that others may end: between the look at what they said before and the wait itself nothing is missed.
class GlooGroup::Waiting {
 public:
  Waiting(GlooGroup& group, const Pending& pending) : group_(group) {
    std::lock_guard lock(group_.mutex_);
    aborted_ = group_.aborted_;
    lost_ = group_.lost_[std::size_t(pending.peer)];
    place_ = group_.waited_for_.insert(group_.waited_for_.end(), &pending);
  }
  Waiting(const Waiting&) = delete;
  ~Waiting() {
    std::lock_guard lock(group_.mutex_);
    group_.waited_for_.erase(place_);
  }
  bool aborted() const { return aborted_; }
  bool lost() const { return lost_; }

 private:
  GlooGroup& group_;
  std::list<const Pending*>::iterator place_;
  bool aborted_, lost_;
};

GlooGroup::GlooGroup(c10d::Store& store, int store_port, int index, const std::vector<std::string>& addresses,
                     Deadline deadline, std::chrono::milliseconds link_timeout, const Look& look)
    : size_(int(addresses.size())), lost_(addresses.size(), false), engine_(std::make_unique<Engine>()) {
  const auto make = [store = c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store), index, size = size_,
                     address = addresses[std::size_t(index)],
                     timeout = left_of(deadline)] { return connect(store, index, size, address, timeout); };
  try {
    engine_->group = look ? Connecting::wait(make, look) : make();
  } catch (const std::exception& error) {
    throw failure_of(-1, error);
  }
  sockets_.find(std::set<std::string>(addresses.begin(), addresses.end()), store_port);
  sockets_.keep_alive(link_timeout);
}

// The duplicates go first: the last descriptor of a connection tells the other side that it is over.
GlooGroup::~GlooGroup() { sockets_.forget(); }

GlooGroup::Pending GlooGroup::send(int peer, const void* data, std::size_t bytes, std::uint32_t tag) {
  std::vector<at::Tensor> tensors{bytes_at(data, bytes)};
  try {
    return {std::make_shared<c10::intrusive_ptr<c10d::Work>>(engine_->group->send(tensors, peer, int(tag))), peer};
  } catch (const std::exception& error) {
    throw failure_of(peer, error);
  }
}

GlooGroup::Pending GlooGroup::receive(int peer, void* data, std::size_t bytes, std::uint32_t tag) {
  std::vector<at::Tensor> tensors{bytes_at(data, bytes)};
  try {
    return {std::make_shared<c10::intrusive_ptr<c10d::Work>>(engine_->group->recv(tensors, peer, int(tag))), peer};
  } catch (const std::exception& error) {
    throw failure_of(peer, error);
  }
}

void GlooGroup::wait(const Pending& pending, Deadline deadline) {
  for (;;) {
    const Waiting waiting(*this, pending);
    if (waiting.aborted()) throw GlooFailure(pending.peer, GlooFailure::ended, "its connection was ended");
    try {
      // False: abort() or lose() has woken this, which also happens when the message has just come.
      if (work_of(pending).wait(waiting.lost() ? std::chrono::milliseconds(1) : left_of(deadline))) return;
    } catch (const std::exception& error) {
      if (waiting.lost()) throw GlooFailure(pending.peer, GlooFailure::ended, "its connection has ended");
      throw failure_of(pending.peer, error);
    }
  }
}

void GlooGroup::abort() noexcept {
  {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    for (const Pending* pending : waited_for_) work_of(*pending).abort();
  }
  sockets_.shut_down();
}

void GlooGroup::lose(int peer) {
  std::lock_guard lock(mutex_);
  lost_[std::size_t(peer)] = true;
  for (const Pending* pending : waited_for_)
    if (pending->peer == peer) work_of(*pending).abort();
}

void GlooGroup::settle() const {
  const Deadline deadline = Deadline::after(std::chrono::seconds(1));
  while (!std::ranges::all_of(sockets_.sockets(), OpenedSockets::is_released) && !deadline.passed())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(c10d::Store& store, int rank, int size, const std::string& address,
                                                    std::chrono::milliseconds timeout) {
  return connect(c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store), rank, size, address, timeout);
}

}  // namespace shoal
