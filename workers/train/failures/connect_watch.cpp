#include <shoal/internal/workers/train/failures/connect_watch.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/workers/train/failures/failure_notes.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

namespace shoal {
namespace {

using std::chrono::milliseconds;

/// There is one store for all ranks: 10,000 of them ask it some 20,000 times a second.
milliseconds longest_pause(int ranks) { return std::max(milliseconds(50), milliseconds(ranks / 10)); }

constexpr milliseconds kFirstPause{1};

/// How long a failure to connect waits for its reason, which others find in slices of longest_pause().
constexpr milliseconds kExplained{1000}, kBetweenLooks{5};

}  // namespace

/// Hands every call on, until it is given up.
class ConnectWatch::Store : public c10d::Store {
 public:
  Store(c10d::Store& store, ConnectWatch& watch)
      : c10d::Store(store.getTimeout()),
        store_(c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store)),
        watch_(&watch),
        longest_(longest_pause(watch.map_.world_size())) {}
  /// From now on nobody connects any more.
  void end_watch() {
    const std::lock_guard lock(mutex_);
    watch_ = nullptr;
  }
  /// A thread that was left alone keeps this one, and the rank's connection to its store is to end.
  void give_up() {
    const std::lock_guard lock(mutex_);
    store_.reset();
  }

  c10::intrusive_ptr<c10d::Store> clone() override { return store()->clone(); }
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    store()->set(key, value);
    SHOAL_KILL_POINT("hosts.written");
  }
  using c10d::Store::compareSet;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    return store()->compareSet(key, expected, desired);
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    wait({key});
    return store()->get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override { return store()->add(key, value); }
  bool deleteKey(const std::string& key) override { return store()->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override { return store()->check(keys); }
  std::int64_t getNumKeys() override { return store()->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    const Deadline deadline = Deadline::after(timeout);
    for (milliseconds pause = kFirstPause; !store()->check(keys); pause = std::min(2 * pause, longest_)) {
      look();
      if (deadline.passed())
        C10_THROW_ERROR(DistStoreError, "wait timeout after " + std::to_string(timeout.count()) + "ms");
      std::this_thread::sleep_for(pause);
    }
  }
  void setTimeout(const milliseconds& timeout) override {
    c10d::Store::setTimeout(timeout);
    store()->setTimeout(timeout);
  }
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override { store()->append(key, value); }
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    wait(keys);
    return store()->multiGet(keys);
  }
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) override {
    store()->multiSet(keys, values);
    SHOAL_KILL_POINT("hosts.written");
  }
  bool hasExtendedApi() const override { return store()->hasExtendedApi(); }

 private:
  c10::intrusive_ptr<c10d::Store> store() const {
    const std::lock_guard lock(mutex_);
    if (!store_) throw std::runtime_error("this rank connects no more");
    return store_;
  }
  void look() {
    const std::lock_guard lock(mutex_);
    if (watch_) watch_->look_again();
  }

  mutable std::mutex mutex_;  // of these:
  c10::intrusive_ptr<c10d::Store> store_;
  ConnectWatch* watch_;
  const milliseconds longest_;
};

struct ConnectWatch::Parts {
  std::vector<c10::intrusive_ptr<Store>> stores;
};

ConnectWatch::ConnectWatch(const HostMap& map, FailureBoard& board, StoreConnection& store,
                           std::function<std::optional<Failure>()> elsewhere)
    : map_(map), board_(board), store_(store), elsewhere_(std::move(elsewhere)), parts_(std::make_unique<Parts>()) {
  for (int host = 0; host < int(map_.hosts.size()); ++host)
    if (host != map_.my_host()) others_.push_back(map_.rank_at(host, 0));
  if (map_.my_local() == 0) store_.write_side(map_.me);
}

ConnectWatch::~ConnectWatch() {
  for (const auto& store : parts_->stores) store->end_watch();
}

c10d::Store& ConnectWatch::part(const std::string& prefix) {
  parts_->stores.push_back(c10::make_intrusive<Store>(store_.part(prefix), *this));
  return *parts_->stores.back();
}

std::chrono::milliseconds ConnectWatch::look_again() {
  if (const auto failure = look()) throw std::runtime_error(failure->text);
  return longest_pause(map_.world_size());
}

std::optional<Failure> ConnectWatch::look() {
  const std::lock_guard lock(looking_);
  return look_at_all();
}

std::optional<Failure> ConnectWatch::look_at_all() {
  if (auto known = board_.read()) return known;
  if (elsewhere_)
    if (auto known = elsewhere_()) return known;
  if (auto dead = dead_on_host(map_, board_, map_.ranks_on(map_.my_host()))) return dead;
  if (store_.sockets().has_ended()) {
    if (store_.is_served())
      return Failure{Failure::died, fmt::format("the store at {}, which the launcher keeps and the ranks need, is gone",
                                                store_.where())};
    return Failure{Failure::died, map_.keeper.who + " died, or has left: its store is gone", map_.keeper.rank};
  }
  try {
    if (auto told = first_told(store_)) return told;
    return look_at_first_ranks();
  } catch (const std::exception&) {
    return std::nullopt;  // the store's connection has just ended: the next look says so
  }
}

std::optional<Failure> ConnectWatch::look_at_first_ranks() {
  if (!map_.keeper.is_me || store_.is_served()) return std::nullopt;
  for (const int rank : store_.seen_to_end(others_))
    if (!store_.has(left_key(rank)))
      return Failure{Failure::died, map_.describe(rank) + " died: its connection to rank 0's store has ended", rank};
  return std::nullopt;
}

Failure ConnectWatch::fail(const Failure& seen) {
  for (const auto& store : parts_->stores) store->give_up();
  std::optional<Failure> known = look();
  // Gloo says that a connection was refused. Mostly its rank has died, and one of that rank's host is about to tell so.
  for (const Deadline end = Deadline::after(kExplained); !known && !end.passed(); known = look())
    std::this_thread::sleep_for(kBetweenLooks);
  Failure why = known.value_or(seen);
  const Failure first = board_.write_first([&] {
    try {
      return tell(store_, map_, why);
    } catch (const std::exception&) {
      return why;  // no store, nobody to tell
    }
  });
  if (map_.keeper.is_me) keep_store(store_, map_, first);
  return first;
}

}  // namespace shoal
