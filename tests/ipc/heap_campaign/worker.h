// One process of the campaign: what it does at random with the heap.
#pragma once

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/queue.h>
#include <signal.h>

#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/ipc/heap_campaign/judge.h"
#include "tests/ipc/heap_campaign/parcel.h"

namespace shoal::test {

/// What a campaign consists of.
struct Plan {
  std::string name;
  int workers = 8;
  double seconds = 7;
  int kills = 0;   // a second
  int stops = 0;   // by SIGSTOP, a second
  int delays = 0;  // of 10 orders given, so many arm delays, the others disarm them
  int churn = 20;  // of 100 operations, so many make and drop blocks of the raced sizes in quick succession
  int rings = 0;   // of 100 operations, so many make, send and drop queues
  int holds = 0;   // of 100 operations, so many add and drop holds of one block, by the thousand at times
  bool forks = false;
  std::size_t most_held = 24u << 20;  // bytes, a process
};

/// The queues that all have in common, made before them.
struct Ground {
  Queue<Parcel> parcels{24};
  Queue<Parcel> more{QueueOptions{.capacity = 64, .byte_capacity = 24u << 20}};
  Queue<Queue<Parcel>> queues{12};
};

/// Lives in its process from the fork to its end; one thread. Whatever it has it verifies before and after. Orders come
/// through its seat of the judge.
class Worker {
 public:
  Worker(Judge& judge, const Plan& plan, Ground& ground, int seat, unsigned seed,
         const std::vector<std::string>& labels);

  /// Until the judge says stop, or so many operations.
  void run(std::uint64_t operations = ~0ull);
  /// Takes and verifies what is left in queues and mailboxes.
  void drain();
  void drop_all();

 private:
  using Held = std::vector<Parcel>;

  void operate();
  std::size_t random_size();
  std::uint64_t random_bait();
  void obey();

  void make();
  void make_at(std::size_t size);
  void churn();
  void drop(std::size_t index, const char* when);
  void drop_random();
  void verify_random();
  void share();
  void add_many_holds();
  void send(Queue<Parcel>& queue);
  void receive(Queue<Parcel>& queue);
  void keep(Parcel parcel, const char* when);
  void lend();
  void borrow();
  void use_rings();
  void fork_child();
  void wait_for_child(bool now);

  bool check(const Parcel& parcel, const char* when);
  void note(const Ident& block);
  void forget(const Ident& block);

  Judge& judge_;
  const Plan& plan_;
  Ground& ground_;
  const int seat_;
  std::mt19937_64 random_;
  const std::vector<std::string>& labels_;
  Held held_;
  std::size_t held_bytes_ = 0;
  std::unordered_map<std::uint32_t, int> handles_;  // to each block
  std::vector<Queue<Parcel>> queues_;
  unsigned long delays_counted_ = kill_points::delays_made();
  pid_t child_ = 0;
  bool is_child_ = false;
};

/// The seat of the child that the worker in this seat may have.
constexpr int child_seat(int seat) { return seat + Judge::kSeats / 2; }

}  // namespace shoal::test
