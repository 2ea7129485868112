#include <shoal/internal/workers/train/hosts/failure_watch.h>

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

namespace shoal {
namespace {

constexpr int kSliceMs = 100;
/// How long a failure may take to be told: a store behind a lost link does not answer.
constexpr std::chrono::milliseconds kTelling{300};

/// How long rank 0 keeps its store after a failure for hosts that have not asked yet; one that is gone never does.
constexpr std::chrono::milliseconds kAsking{500};

std::string told_key(int host) { return fmt::format("told/{}", host); }
std::string left_key(int rank) { return fmt::format("left/{}", rank); }

/// What the store answers, where it may not.
struct Answer {
  std::mutex mutex;
  std::condition_variable there;
  std::optional<std::string> text;
  bool over = false;
};

}  // namespace

FailureWatch::FailureWatch(const HostMap& map, FailureBoard& board, StoreConnection& store, GlooGroup* column,
                           std::function<void()> leave_host)
    : map_(map),
      board_(board),
      store_(store),
      column_(column),
      leave_host_(std::move(leave_host)),
      wakes_(lift(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)))) {
  if (!wakes_) throw SystemError("eventfd", errno);
  if (column_)
    for (const auto& socket : column_->sockets().sockets()) watched_.push_back(socket.descriptor.get());
  thread_ = make_service_thread("shoal hosts", [this] { watch(); });
}

FailureWatch::~FailureWatch() {
  ends_ = true;
  wake();
  if (board_.has_failed()) store_.sockets().shut_down();  // the thread, or the teller, may wait for an answer
  thread_.join();
  if (board_.has_failed()) {
    store_.sockets().shut_down();
    if (teller_.joinable()) teller_.join();
    if (column_) column_->abort();
    return;
  }
  board_.leave();
  // Before the connections end: whoever sees them end finds that this was no death. A store that is gone takes no note.
  const auto answer = std::make_shared<Answer>();
  teller_ = std::thread([this, answer] {
    try {
      if (!store_.sockets().has_ended()) store_.set(left_key(map_.me), "left");
    } catch (const std::exception&) {
    }
    std::lock_guard lock(answer->mutex);
    answer->over = true;
    answer->there.notify_all();
  });
  {
    std::unique_lock lock(answer->mutex);
    if (!answer->there.wait_for(lock, kTelling, [&] { return answer->over; })) store_.sockets().shut_down();
  }
  teller_.join();
}

void FailureWatch::wake() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] auto written = ::write(wakes_.get(), &one, sizeof one);
}

void FailureWatch::watch() {
  while (!ends_) {
    try {
      look_at_connections(kSliceMs);
      if (ends_) return;
      if (!board_.has_failed()) look_at_next_rank();
      // Nobody is done with a collective that this rank has not told the others of.
      if (cut_off_ >= 0 && enters_ && !board_.has_failed())
        report({Failure::unreachable, map_.describe(cut_off_) +
                                          " cannot be reached any more: its connection has ended, and so has that to "
                                          "rank 0's store"},
               false);
      if (board_.has_failed()) {
        (void)board_.read();  // its text is in the store by now
        if (column_) column_->abort();
        return leave_host_();
      }
    } catch (const std::exception& error) {
      log_warning("the watch over the ranks of other hosts has ended: {}", error.what());
      return;
    }
  }
}

void FailureWatch::look_at_connections(int timeout_ms) {
  std::vector<pollfd> polled{{wakes_.get(), POLLIN, 0}};
  for (const int descriptor : watched_) polled.push_back({descriptor, POLLRDHUP, 0});  // poll() passes over -1
  if (::poll(polled.data(), polled.size(), timeout_ms) <= 0 || ends_) return;
  for (std::size_t i = 0; i < watched_.size() && !board_.has_failed(); ++i) {
    if (polled[i + 1].revents == 0) continue;
    watched_[i] = -1;
    const auto& socket = column_->sockets().sockets()[i];
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.descriptor.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    const bool unanswered = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
    // Hosts of a simulation, and launchers on one machine, have one address: then it is one of several ranks.
    for (int host = 0; host < int(map_.hosts.size()) && !board_.has_failed(); ++host) {
      const int rank = map_.rank_at(host, map_.my_local());
      if (rank == map_.me || map_.hosts[std::size_t(host)].address != socket.address) continue;
      const std::string who = map_.describe(rank);
      if (unanswered) {
        report({Failure::unreachable, fmt::format("{} cannot be reached any more: {}", who, std::strerror(error))},
               rank);
        continue;
      }
      const bool alone = std::ranges::count(map_.hosts, socket.address, &HostMap::Host::address) == 1;
      bool has_left = true;
      cut_off_ = rank;
      try {
        if (!store_.sockets().has_ended()) {
          has_left = store_.has(left_key(rank));
          cut_off_ = -1;
        }
      } catch (const std::exception&) {
        // No store: rank 0 is dead or has left, and so may this one. Who waits for it learns it at once.
      }
      if (!has_left && alone) report({Failure::died, who + " died: its connection has ended"}, true);
    }
  }
}

void FailureWatch::look_at_next_rank() {
  if (auto gone = look_at_host(1)) report(*gone, true);
}

std::optional<Failure> FailureWatch::look_at_host(int ranks) const {
  const int count = map_.ranks_on(map_.my_host());
  for (int step = 1; step < count && step <= ranks; ++step) {
    const int local = (map_.my_local() + step) % count;
    const int rank = map_.rank_at(map_.my_host(), local);
    const ProcessTag tag = ProcessTag::from_word(board_.tag_of(local));
    if (board_.has_left(local) || !tag || Session::current().is_alive(tag)) continue;
    return Failure{Failure::died, map_.describe(rank) + " died"};
  }
  return std::nullopt;
}

Failure FailureWatch::report(const Failure& seen, bool is_sure) {
  const Failure first = board_.write_first([&] { return first_of_all(seen, is_sure); });
  if (column_) column_->abort();
  wake();  // the thread does the rest: whoever reports may be in a call
  return first;
}

void FailureWatch::keep_store() const {
  const Deadline deadline = Deadline::after(kAsking);
  try {
    for (int host = 0; host < int(map_.hosts.size()); ++host)
      while (host != map_.my_host() && !deadline.passed() && !store_.sockets().has_ended() &&
             !store_.has(told_key(host)))
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
  } catch (const std::exception&) {
    // A store that the launcher keeps may be gone, too.
  }
}

/// The first failure that any host has told of, which may be this one.
Failure FailureWatch::first_of_all(const Failure& seen, bool is_sure) {
  const auto answer = std::make_shared<Answer>();
  teller_ = std::thread([this, answer, text = fmt::format("{}{}", int(seen.kind), seen.text)] {
    std::optional<std::string> first;
    try {
      // Asked first: where it fails, libtorch writes a page to stderr.
      if (!store_.sockets().has_ended()) {
        first = store_.set_first("failure", text);
        store_.set(told_key(map_.my_host()), "told");
      }
    } catch (const std::exception&) {
    }
    std::lock_guard lock(answer->mutex);
    answer->text = first;
    answer->over = true;
    answer->there.notify_all();
  });
  std::unique_lock lock(answer->mutex);
  answer->there.wait_for(lock, kTelling, [&] { return answer->over; });
  if (answer->text && !answer->text->empty()) return {Failure::Kind((*answer->text)[0] - '0'), answer->text->substr(1)};
  // Without its store rank 0 is gone, or its host; a connection that ended then is likely to have ended because of that.
  if (answer->over && !is_sure && map_.places[0].host != map_.my_host())
    return {Failure::died, map_.describe(0) + " died, or has left: its store is gone"};
  return seen;
}

}  // namespace shoal
