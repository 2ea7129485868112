#include <shoal/internal/workers/train/failures/failure_watch.h>

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/workers/train/failures/failure_notes.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace shoal {
namespace {

constexpr int kSliceMs = 100;
/// While Gloo has yet to notice the end of a connection, which it does in a moment.
constexpr int kShortSliceMs = 5;
}  // namespace

FailureWatch::FailureWatch(const HostMap& map, FailureBoard& board, StoreConnection& store, Column* column, Steps steps)
    : map_(map),
      board_(board),
      store_(store),
      questions_(store),
      column_(column),
      steps_(std::move(steps)),
      wakes_(lift(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)))),
      left_(map.hosts.size()) {
  if (!wakes_) throw SystemError("eventfd", errno);
  for (std::size_t i = 0; column_ && i < column_->gloo.sockets().sockets().size(); ++i) {
    Watched connection{i, {}, Stage::lives};
    for (int host = 0; host < int(map_.hosts.size()); ++host)
      if (host != map_.my_host() &&
          map_.hosts[std::size_t(host)].address == column_->gloo.sockets().sockets()[i].address)
        connection.hosts.push_back(host);
    watched_.push_back(std::move(connection));
  }
  thread_ = make_service_thread("shoal-hosts", [this] { watch(); });
}

FailureWatch::~FailureWatch() {
  SHOAL_KILL_POINT("hosts.leave");
  ends_ = true;
  wake_thread();
  settle();
  if (board_.has_failed()) store_.sockets().shut_down();  // the thread may wait for an answer
  thread_.join();
  settle();  // of what was found meanwhile
  if (board_.has_failed()) {
    store_.sockets().shut_down();
    if (column_) column_->abort();
    return;
  }
  board_.leave();
  // Before the connections end: whoever sees them end finds that this was no death. A store that is gone takes no note.
  questions_.ask([this](StoreConnection& store) {
    store.set(left_key(map_.me), "left");
    return "";
  });
}

/// Returns when the board's failure, if it has one, is told.
void FailureWatch::settle() {
  while (board_.has_failed()) {
    if (const auto failure = board_.read()) {
      if (map_.keeper.is_me) keep_store(*failure);
      return;
    }
    // Who was to tell has died.
    const auto gone = dead_on_host(map_, board_, map_.ranks_on(map_.my_host()));
    if (!gone) return;
    report(*gone, true);
  }
}

void FailureWatch::wake_thread() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] auto written = ::write(wakes_.get(), &one, sizeof one);
}

void FailureWatch::watch() {
  while (!ends_) {
    try {
      sleep();
      if (ends_) return;
      // First those that one can be sure of: a connection may have ended because of them.
      if (!board_.has_failed()) look_at_next_rank();
      if (!board_.has_failed()) look_at_connections();
      if (!board_.has_failed()) look_at_store();
      // Nobody is done with a collective that this rank has not told the others of.
      if (cut_off_ >= 0 && enters_ && !board_.has_failed())
        report({Failure::unreachable,
                map_.describe(cut_off_) + " cannot be reached any more: its connection has ended, and so has that to "
                                          "rank 0's store",
                cut_off_},
               false);
      if (!board_.has_failed()) continue;
      const auto failure = board_.read();
      if (!failure) {  // its text is in the store otherwise
        if (auto gone = dead_on_host(map_, board_, map_.ranks_on(map_.my_host()))) report(*gone, true);
        continue;
      }
      try {
        steps_.tell(*failure);
      } catch (const std::exception& error) {
        log_warning("where the ranks are cannot be told: {}", error.what());
      }
      if (column_) column_->abort();
      return steps_.wake(*failure);
    } catch (const std::exception& error) {
      log_warning("the watch over the ranks of other hosts has ended: {}", error.what());
      return;
    }
  }
}

void FailureWatch::sleep() {
  std::vector<pollfd> polled{{wakes_.get(), POLLIN, 0}};
  int slice = kSliceMs;
  for (const Watched& connection : watched_) {
    if (connection.stage == Stage::ended) slice = kShortSliceMs;
    if (connection.stage == Stage::lives)
      polled.push_back({column_->gloo.sockets().sockets()[connection.socket].descriptor.get(), POLLRDHUP, 0});
  }
  if (store_.is_served() && !store_.sockets().has_ended())
    for (const auto& socket : store_.sockets().sockets()) polled.push_back({socket.descriptor.get(), POLLRDHUP, 0});
  ::poll(polled.data(), polled.size(), slice);
}

void FailureWatch::look_at_connections() {
  for (Watched& connection : watched_) {
    const OpenedSockets::Socket& socket = column_->gloo.sockets().sockets()[connection.socket];
    pollfd polled{socket.descriptor.get(), POLLRDHUP, 0};
    if (connection.stage == Stage::lives && ::poll(&polled, 1, 0) > 0) {
      connection.stage = Stage::ended;
      tell_of_end(connection);
    }
    if (board_.has_failed()) return;
    if (connection.stage != Stage::ended || !OpenedSockets::is_released(socket)) continue;
    // Where several ranks may be the one, those that have left; where nobody can say, all: the group has lost one anyway.
    const bool some_left =
        std::ranges::any_of(connection.hosts, [&](int host) { return left_[std::size_t(host)].load(); });
    for (const int host : connection.hosts)
      if (!some_left || left_[std::size_t(host)]) column_->lose(host);
    connection.stage = Stage::over;
  }
}

/// Reports a connection that has ended, unless the rank has left, or nobody can say whether it has.
void FailureWatch::tell_of_end(Watched& connection) {
  const OpenedSockets::Socket& socket = column_->gloo.sockets().sockets()[connection.socket];
  std::string who;
  int rank = -1;
  for (const int host : connection.hosts) {
    rank = map_.rank_at(host, map_.my_local());
    who += (who.empty() ? "" : " or ") + map_.describe(rank);
  }
  if (rank < 0) return;
  if (connection.hosts.size() > 1) rank = -1;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.descriptor.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
    report({Failure::unreachable, fmt::format("{} cannot be reached any more: {}", who, std::strerror(error)), rank},
           true);
    return;
  }
  const StoreQuestions::Answer left = questions_.ask([this, hosts = connection.hosts](StoreConnection& store) {
    std::string answer;
    for (const int host : hosts) answer += store.has(left_key(map_.rank_at(host, map_.my_local()))) ? '1' : '0';
    return answer;
  });
  if (left.end == StoreQuestions::End::answered) {
    for (std::size_t i = 0; i < connection.hosts.size(); ++i)
      left_[std::size_t(connection.hosts[i])] = left.text[i] == '1';
    if (left.text.find('1') != std::string::npos) return;
    // Whoever sees a rank of this host die ends its connections, too: the cause is told and not the effect.
    if (const auto gone = dead_on_host(map_, board_, map_.ranks_on(map_.my_host())))
      report(*gone, true);
    else
      report({Failure::died, who + " died: its connection has ended", rank}, true);
    return;
  }
  // No answer: rank 0 is dead, stopped, cut off or has left, and so may this one. Who waits for it learns it when Gloo has let go of it.
  cut_off_ = map_.rank_at(connection.hosts[0], map_.my_local());
}

void FailureWatch::look_at_store() {
  if (store_.is_served() && store_.sockets().has_ended()) report(store_failure(), true);
}

Failure FailureWatch::store_failure() const {
  return {Failure::died,
          fmt::format("the store at {}, which the launcher keeps and the ranks need, is gone", store_.where())};
}

bool FailureWatch::has_left(int rank) const {
  return left_[std::size_t(map_.places[std::size_t(rank)].host)].load() &&
         map_.places[std::size_t(rank)].local == map_.my_local();
}

void FailureWatch::look_at_next_rank() {
  if (auto gone = dead_on_host(map_, board_, 1)) report(*gone, true);
}

void FailureWatch::report_death(int rank, const std::string& text) {
  const StoreQuestions::Answer left =
      questions_.ask([rank](StoreConnection& store) { return store.has(left_key(rank)) ? "left" : ""; });
  if (left.end == StoreQuestions::End::answered && left.text.empty()) report({Failure::died, text, rank}, true);
}

Failure FailureWatch::report(const Failure& seen, bool is_sure) {
  const Failure first = board_.write_first([&] { return first_of_all(seen, is_sure); });
  if (column_) column_->abort();
  wake_thread();  // the thread does the rest: whoever reports may be in a call
  return first;
}

/// The first failure that any host has told of, which may be this one.
Failure FailureWatch::first_of_all(const Failure& seen, bool is_sure) {
  SHOAL_KILL_POINT("hosts.tell");
  // Kept by the question, too: its thread may still wait for the store's answer when this has given up waiting for it.
  const auto told = std::make_shared<Failure>();
  const StoreQuestions::Answer first = questions_.ask([this, told, seen](StoreConnection& store) {
    *told = tell(store, map_, seen);
    return "told";
  });
  if (first.end == StoreQuestions::End::answered) return *told;
  if (first.end == StoreQuestions::End::open) return seen;
  // Who saw that first has ended its connections, which looks like a death.
  if (store_.is_served() && seen.kind == Failure::died) return store_failure();
  if (is_sure) return seen;
  // Without its store rank 0 is gone, or its host; a connection that ended then is likely to have ended because of that.
  if (map_.keeper.is_here) return seen;
  return {Failure::died, map_.keeper.who + " died, or has left: its store is gone", map_.keeper.rank};
}

}  // namespace shoal
