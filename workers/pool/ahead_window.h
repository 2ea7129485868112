// Requests that a pool is given ahead of whoever consumes their results.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/pool/host.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace shoal::detail {

/// In which order results are handed out: as they were asked for, or whichever is there first.
enum class Order { kOfInput, kOfCompletion };

/// Keeps a number of requests under way and hands out those that are done. Imap's and the data loader's: what they ask
/// for, how many, and what becomes of the results is theirs. `Core` is a Host that takes `Job`. Belongs to its owner,
/// one thread; the requests' own state is under the mutex of the Host.
template <class Core, class Job>
class AheadWindow {
 public:
  AheadWindow(std::shared_ptr<Core> core, Order order) : core_(std::move(core)), order_(order) {}

  [[nodiscard]] bool empty() const { return asked_.empty(); }

  /// Asks for what next() returns, until `ahead` requests are under way or next() returns a null pointer. What next() or
  /// the pool throws comes out, and those asked for before stay.
  template <class Next>
  void fill(std::size_t ahead, Next&& next) {
    while (asked_.size() < ahead) {
      std::shared_ptr<Job> job = next();
      if (!job) return;
      core_->submit(job, Awaited::kLater);
      asked_.push_back(std::move(job));
    }
  }

  /// The request whose turn it is, which is done then and leaves the window. A null pointer at the deadline. For a
  /// window that is not empty.
  std::shared_ptr<Job> take(Deadline deadline) {
    auto found = asked_.end();
    const auto ready = [&] { return (found = first_done()) != asked_.end(); };
    if (!core_->wait(ready, deadline)) return nullptr;
    std::shared_ptr<Job> job = std::move(*found);
    asked_.erase(found);
    return job;
  }
  /// Whether take() would return one without waiting.
  [[nodiscard]] bool lies_ready() {
    const auto lock = core_->lock();
    return first_done() != asked_.end();
  }

  /// Calls visit(job) for each request that is done and was not taken, under the Host's mutex.
  template <class Visit>
  void for_each_done(Visit&& visit) {
    const auto lock = core_->lock();
    for (const auto& job : asked_)
      if (job->done()) visit(*job);
  }

  /// Gives up the requests for which is(job) holds: a pool's task that nobody has begun is never begun.
  template <class Is>
  void abandon_if(Is&& is) {
    std::erase_if(asked_, [&](const auto& job) {
      const bool goes = is(*job);
      if (goes) core_->abandon(job);
      return goes;
    });
  }
  /// Gives up all of them, and waits for what runs of them if that uses the caller's scope (see Host::finish).
  void leave() {
    for (const auto& job : asked_) core_->abandon(job);
    for (const auto& job : asked_) core_->finish(*job);
    asked_.clear();
  }
  /// For an owner that has told the pool by itself to forget everything.
  void forget() { asked_.clear(); }

 private:
  using Asked = std::deque<std::shared_ptr<Job>>;

  /// Under the Host's mutex.
  [[nodiscard]] typename Asked::iterator first_done() {
    const auto done = [](const auto& job) { return job->done(); };
    if (order_ == Order::kOfCompletion) return std::find_if(asked_.begin(), asked_.end(), done);
    return !asked_.empty() && done(asked_.front()) ? asked_.begin() : asked_.end();
  }

  std::shared_ptr<Core> core_;
  Order order_;
  Asked asked_;
};

}  // namespace shoal::detail
