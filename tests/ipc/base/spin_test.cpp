// When a thread stops spinning, and when it stops giving its CPU away.
#include <shoal/internal/ipc/base/spin.h>

#include <sched.h>

#include <stdexcept>
#include <thread>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// In a thread of its own, since what a thread has learned stays with it.
template <class Body>
void in_a_thread(Body body) {
  std::thread(body).join();
}

/// A wait for what never comes.
void wait_in_vain(Spinner::Turns turns) {
  Spinner spinner(turns);
  while (spinner.turn()) {
  }
  spinner.ended(false);
}

bool spins(Spinner::Turns turns) { return Spinner(turns).turn(); }

void stay_on(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (::sched_setaffinity(0, sizeof one, &one) != 0) throw std::runtime_error("no affinity for this CPU");
}

}  // namespace

TEST_CASE("spin: whoever waits in vain spins less and less, in both ways") {
  for (const Spinner::Turns turns : {Spinner::Turns::pauses, Spinner::Turns::yields})
    in_a_thread([&] {
      // A trial may come in between: then once more.
      while (spins(turns)) wait_in_vain(turns);
    });
}

TEST_CASE("spin: what a thread learns by one way of spinning says nothing of the other") {
  in_a_thread([] {
    while (spins(Spinner::Turns::yields)) wait_in_vain(Spinner::Turns::yields);
    if (std::thread::hardware_concurrency() > 1) CHECK(spins(Spinner::Turns::pauses));  // it looks at no clock yet
  });
}

TEST_CASE("spin: a thread whose CPU was kept by another for long yields no more, though what it waited for has come") {
  const int cpu = ::sched_getcpu();
  Forked busy([&] {
    stay_on(cpu);
    for (volatile bool on = true; on;) {
    }
  });
  in_a_thread([&] {
    stay_on(cpu);
    for (;;) {
      Spinner spinner(Spinner::Turns::yields);
      if (!spinner.turn()) break;
      spinner.ended(true);  // each was a success: only the long turn says otherwise
    }
    CHECK_FALSE(spins(Spinner::Turns::yields));
  });
}
