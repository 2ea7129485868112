#include "tests/ipc/heap_campaign/worker.h"

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/session.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace shoal::test {

Worker::Worker(Judge& judge, const Plan& plan, Ground& ground, int seat, unsigned seed,
               const std::vector<std::string>& labels)
    : judge_(judge), plan_(plan), ground_(ground), seat_(seat), random_(seed), labels_(labels) {
  judge_.seats[seat_].tag = Session::current().self().word();
}

void Worker::run(std::uint64_t operations) {
  for (; operations > 0 && !judge_.stop; --operations) {
    obey();
    try {
      operate();
    } catch (const OutOfSharedMemory&) {
      ++judge_.figures.refused;
      drop_random();
    } catch (const TimeoutError&) {
    } catch (const PeerDied&) {
    }
    ++judge_.seats[seat_].operations;
    judge_.figures.delays += kill_points::delays_made() - std::exchange(delays_counted_, kill_points::delays_made());
  }
  wait_for_child(false);
  drop_all();
}

void Worker::obey() {
  Judge::Seat& orders = judge_.seats[seat_];
  if (const int label = orders.kill_label.exchange(-1); label >= 0)
    kill_at(labels_[std::size_t(label)].c_str(), int(random_() % 4));
  if (const int label = orders.delay_label.exchange(-1); label >= 0)
    delay_at(label == int(labels_.size()) ? "" : labels_[std::size_t(label)].c_str(),
             {.mean = orders.delay_mean, .one_in = orders.delay_one_in, .seed = unsigned(random_())});
}

void Worker::operate() {
  while (held_bytes_ > plan_.most_held || held_.size() > 300) drop_random();
  int dice = int(random_() % 100);
  if ((dice -= plan_.churn) < 0) return churn();
  if ((dice -= plan_.rings) < 0) return use_rings();
  if ((dice -= plan_.holds) < 0) return add_many_holds();
  switch (random_() % 32) {
    case 0:
    case 1:
      return share();
    case 2:
    case 3:
      return send(random_() % 2 ? ground_.parcels : ground_.more);
    case 4:
    case 5:
      return receive(random_() % 2 ? ground_.parcels : ground_.more);
    case 6:
      return lend();
    case 7:
      return borrow();
    case 8:
    case 9:
      return verify_random();
    case 10:
      if (random_() % 2 != 0) return;
      ++judge_.figures.trims;
      return Session::current().heap().trim();
    case 11:
      return fork_child();
    case 12:
      if (random_() % 8 == 0) Session::current().reclaim_all();
      return;
    case 13:
    case 14:
    case 15:
    case 16:
    case 17:
    case 18:
    case 19:
    case 20:
    case 21:
      return drop_random();
    default:
      return make();
  }
}

std::size_t Worker::random_size() {
  const auto around = [&](std::size_t size) { return size - 8 + random_() % 17; };
  switch (random_() % 20) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
      return (512u << 10) - random_() % 4096;
    case 5:
    case 6:
    case 7:
    case 8:
    case 9:
      return (3u << 20) + random_() % (4u << 20);
    case 10:
      return around(1u << 20);
    case 11:
      return around((1 + random_() % 4) << 21);
    case 12:
      return random_() % 8 == 0 ? (8u << 20) + random_() % (32u << 20) : (1u << 20) + random_() % (1u << 20);
    default:
      return std::size_t(std::exp2(double(random_() % 20'000) / 1000));  // 1 B to 1 MiB
  }
}

std::uint64_t Worker::random_bait() {
  if (plan_.rings + plan_.holds == 0 || random_() % 2 != 0) return 0;
  const Judge::Seat& victim = judge_.seats[random_() % std::uint64_t(plan_.workers)];
  const ProcessTag tag = ProcessTag::from_word(victim.tag.load());
  if (!tag) return 0;
  switch (random_() % 4) {
    case 0:  // a ring's cell that the victim has claimed, or taken
      return std::uint64_t(tag.slot()) << 2 | (random_() % 2 ? 1 : 3) | (random_() % 4) << 24;
    case 1:  // a hold in transit
      return std::uint64_t(tag.transit_word()) << 32 | tag.transit_word();
    case 2:
      return std::uint64_t(tag.word()) << 32 | tag.word();
    default:
      return (random_() & ~0x3fffull) | std::uint64_t(tag.slot()) << 2 | 1;
  }
}

void Worker::note(const Ident& block) {
  if (handles_[block.serial]++ == 0) judge_.note_held(seat_, block);
}

void Worker::forget(const Ident& block) {
  auto found = handles_.find(block.serial);
  if (--found->second > 0) return;
  handles_.erase(found);
  judge_.note_dropped(seat_, block);
}

bool Worker::check(const Parcel& parcel, const char* when) {
  if (parcel.hold.size() != parcel.ident.size) {
    ++judge_.figures.damaged;
    judge_.report(fmt::format("SIZE: block {} of {} bytes says that it has {} ({})", parcel.ident.serial,
                              parcel.ident.size, parcel.hold.size(), when));
    return false;
  }
  return judge_.verify(seat_, parcel.hold.data(), parcel.ident, when);
}

void Worker::make() { make_at(random_size()); }

void Worker::make_at(std::size_t size) {
  const std::uint64_t bait = random_bait();
  Hold hold = allocate_shared(size);
  const Ident ident = judge_.note_made(seat_, hold.data(), size, bait);
  handles_[ident.serial] = 1;
  Pattern::of(ident.serial, ident.owner, std::uint64_t(hold.data() - judge_.data()), bait).fill(hold.data(), size);
  ++judge_.figures.made;
  judge_.figures.large += size > (1u << 20);
  held_bytes_ += size;
  held_.push_back({std::move(hold), ident});
}

/// Hundreds of blocks a second more than where all bytes are written: their words are few, but their places are noted
/// like others'.
void Worker::churn() {
  Held few;
  const auto drop_one = [&](std::size_t index) {
    std::swap(few[index], few.back());
    Parcel parcel = std::move(few.back());
    few.pop_back();
    check(parcel, "before it drops it at once");
    forget(parcel.ident);
  };
  const std::size_t most = 1 + random_() % 3;
  for (int i = 0; i < 60; ++i) {
    const std::size_t size = random_() % 2 ? (512u << 10) - random_() % 4096 : (3u << 20) + random_() % (4u << 20);
    const std::uint64_t bait = random_bait();
    Hold hold;
    try {
      hold = allocate_shared(size);
    } catch (const OutOfSharedMemory&) {
      ++judge_.figures.refused;
      if (few.empty()) break;
      drop_one(0);
      continue;
    }
    Ident ident = judge_.note_made(seat_, hold.data(), size, bait);
    ident.sparse = true;
    handles_[ident.serial] = 1;
    Pattern::of(ident.serial, ident.owner, std::uint64_t(hold.data() - judge_.data()), bait)
        .fill_sparsely(hold.data(), size);
    ++judge_.figures.made;
    judge_.figures.large += size > (1u << 20);
    few.push_back({std::move(hold), ident});
    if (few.size() > most) drop_one(random_() % few.size());
  }
  while (!few.empty()) drop_one(few.size() - 1);
}

void Worker::keep(Parcel parcel, const char* when) {
  note(parcel.ident);
  check(parcel, when);
  held_bytes_ += parcel.ident.size;
  held_.push_back(std::move(parcel));
}

void Worker::drop(std::size_t index, const char* when) {
  std::swap(held_[index], held_.back());
  Parcel parcel = std::move(held_.back());
  held_.pop_back();
  held_bytes_ -= parcel.ident.size;
  check(parcel, when);
  forget(parcel.ident);
}

void Worker::drop_random() {
  if (!held_.empty()) drop(random_() % held_.size(), "before it drops it");
}

void Worker::drop_all() {
  while (!held_.empty()) drop(held_.size() - 1, "before it drops it at the end");
  queues_.clear();
}

void Worker::verify_random() {
  if (!held_.empty()) check(held_[random_() % held_.size()], "while it has it");
}

void Worker::share() {
  if (held_.empty()) return;
  const Parcel& one = held_[random_() % held_.size()];
  Parcel another{one.hold.share(), one.ident};
  keep(std::move(another), "after it shared it");
}

void Worker::add_many_holds() {
  if (held_.empty()) make_at(random_() % 5000 + 1);
  const std::size_t index = random_() % held_.size();
  const std::size_t many = random_() % 6 == 0 ? 1000 + random_() % 1600 : 4 + random_() % 12;
  std::vector<Hold> holds;
  for (std::size_t i = 0; i < many; ++i) holds.push_back(held_[index].hold.share());
  ++judge_.figures.chunks;
  check(held_[index], "with many holds");
  std::shuffle(holds.begin(), holds.end(), random_);
  // Half of the time the block itself goes first, so that the last hold is one in a chunk.
  if (random_() % 2 == 0) {
    const Ident ident = held_[index].ident;
    note(ident);
    drop(index, "before its first hold goes");
    while (holds.size() > 1) holds.pop_back();
    Parcel last{std::move(holds.back()), ident};
    check(last, "with one hold in a chunk");
    forget(ident);
  }
  holds.clear();
  // What the chunks were is wanted again at once.
  for (int i = 0; i < 3; ++i) make_at(4100 - random_() % 400);
}

void Worker::send(Queue<Parcel>& queue) {
  if (held_.empty()) return;
  const std::size_t index = random_() % held_.size();
  if (random_() % 2 == 0) {
    check(held_[index], "before it sends it");
    queue.try_put(held_[index]);
    check(held_[index], "after it sent it");
    return;
  }
  std::swap(held_[index], held_.back());
  Parcel parcel = std::move(held_.back());
  held_.pop_back();
  held_bytes_ -= parcel.ident.size;
  check(parcel, "before it gives it away");
  forget(parcel.ident);
  parcel.given = true;
  queue.try_put(parcel);  // where there is no room, that drops it
}

void Worker::receive(Queue<Parcel>& queue) {
  if (auto parcel = queue.try_get()) {
    ++judge_.figures.received;
    keep(std::move(*parcel), "when it received it");
  }
}

void Worker::lend() {
  Judge::Mailbox& box = judge_.mailboxes[seat_];
  std::uint32_t empty = 0;
  if (held_.empty() || !box.state.compare_exchange_strong(empty, 1)) return;
  const std::size_t index = random_() % held_.size();
  check(held_[index], "before it lends it");
  box.ident = held_[index].ident;
  HoldRef lent;
  try {
    lent = held_[index].hold.share_in_transit();
  } catch (...) {
    box.state = 0;
    throw;
  }
  box.block = lent.block.value;
  box.word = lent.word;
  box.lender = Session::current().self().word();
  box.state = 2;
}

void Worker::borrow() {
  Judge::Mailbox& box = judge_.mailboxes[random_() % Judge::kSeats];
  std::uint32_t full = 2;
  if (!box.state.compare_exchange_strong(full, Judge::Mailbox::kReading + std::uint32_t(seat_))) return;
  const Ident ident = box.ident;
  const HoldRef lent{BlockOffset{box.block}, box.word};
  Hold hold = Hold::adopt(lent, ProcessTag::from_word(box.lender));
  box.state = 0;
  if (!hold) return;  // the lender died
  ++judge_.figures.adopted;
  keep({std::move(hold), ident}, "when it adopted it");
}

void Worker::use_rings() {
  while (queues_.size() > 6) queues_.erase(queues_.begin() + long(random_() % queues_.size()));
  switch (random_() % 6) {
    case 0: {
      ++judge_.figures.rings;
      queues_.emplace_back(std::size_t(1) << random_() % 11);
      for (int i = int(random_() % 6); i > 0; --i) {
        if (held_.empty() || random_() % 2) make_at(random_() % 20'000 + 1);
        send(queues_.back());
      }
      return;
    }
    case 1:
      if (queues_.empty()) return;
      // More than seven messages with one queue in them, and its hold words go on in a chunk.
      for (int i = int(random_() % 10); i >= 0; --i) ground_.queues.try_put(queues_[random_() % queues_.size()]);
      return;
    case 2:
      if (auto queue = ground_.queues.try_get()) queues_.push_back(std::move(*queue));
      return;
    case 3:
      if (!queues_.empty()) send(queues_[random_() % queues_.size()]);
      return;
    case 4:
      if (!queues_.empty()) receive(queues_[random_() % queues_.size()]);
      return;
    default: {
      if (queues_.empty()) return;
      // The ring's memory, and its message's, become blocks of the campaign at once.
      const std::size_t ring = queues_.back().capacity() * 64;
      queues_.pop_back();
      for (int i = 0; i < 4; ++i) make_at(ring + random_() % 1024);
    }
  }
}

void Worker::fork_child() {
  wait_for_child(true);
  const int seat = child_seat(seat_);
  if (!plan_.forks || is_child_ || child_ != 0 || judge_.seats[seat].pid != 0 || random_() % 16 != 0) return;
  const unsigned seed = unsigned(random_());
  int ready[2];
  if (::pipe(ready) != 0) throw std::runtime_error("pipe");
  const pid_t parent = ::getpid();
  child_ = ::fork();
  if (child_ != 0) {
    ::close(ready[1]);
    char byte;
    while (::read(ready[0], &byte, 1) < 0 && errno == EINTR) {
    }
    ::close(ready[0]);
    ++judge_.figures.forks;
    return;
  }
  int code = 1;
  try {
    ::close(ready[0]);
    // Its parent may die at any moment, and another one in its seat have another child.
    std::int32_t nobody = 0;
    if (!judge_.seats[seat].pid.compare_exchange_strong(nobody, ::getpid())) ::_exit(0);
    if (::getppid() != parent) {
      judge_.seats[seat].pid = 0;
      ::_exit(0);
    }
    SessionCore& session = SessionCore::current();
    session.self();
    try {
      session.adopt_inherited_holds();
    } catch (const OutOfSharedMemory&) {
      throw;
    } catch (const Error&) {
      if (::getppid() == parent) throw;
      ::_exit(0);  // it died, and some of what it had is not there any more
    }
    Worker child(judge_, plan_, ground_, seat, seed, labels_);
    child.is_child_ = true;
    for (const auto& [serial, count] : handles_) child.handles_[serial] = count;
    child.held_ = std::move(held_);
    child.held_bytes_ = held_bytes_;
    child.queues_ = std::move(queues_);
    for (const Parcel& parcel : child.held_) judge_.note_held(seat, parcel.ident);
    (void)!::write(ready[1], "r", 1);
    ::close(ready[1]);
    for (const Parcel& parcel : child.held_) child.check(parcel, "when it inherited it");
    child.run(random_() % 300);
    session.leave();
    code = 0;
  } catch (const OutOfSharedMemory&) {
    // Where its parent's holds fill the headers, its own need a chunk of hold words, and there is no memory for one. What
    // it adopted before that its reclaimer gives up.
    ++judge_.figures.refused;
    code = 0;
  } catch (const std::exception& error) {
    judge_.report(fmt::format("EXCEPTION in a child in seat {}: {}", seat, error.what()));
  }
  ::_exit(code);
}

void Worker::wait_for_child(bool now) {
  if (child_ == 0) return;
  int status = 0;
  pid_t gone;
  while ((gone = ::waitpid(child_, &status, now ? WNOHANG : 0)) < 0 && errno == EINTR) {
  }
  if (gone != child_) return;
  if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
    judge_.report(fmt::format("END of a child in seat {}: status {:#x}", child_seat(seat_), status));
  judge_.bury(child_seat(seat_));
  child_ = 0;
}

void Worker::drain() {
  const auto empty = [&](Queue<Parcel>& queue) {
    while (auto parcel = queue.try_get()) {
      keep(std::move(*parcel), "when it was left in a queue");
      drop(held_.size() - 1, "before it drops it after the end");
    }
  };
  empty(ground_.parcels);
  empty(ground_.more);
  while (auto queue = ground_.queues.try_get()) empty(*queue);
}

}  // namespace shoal::test
