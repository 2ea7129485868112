// A reclaimer that lacks private memory somewhere in the middle: who looks next finds all that it needs.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>

#include <new>

#include "tests/ipc/heap/refused_memory.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

#ifdef SHOAL_TEST_REFUSES_MEMORY

using namespace shoal;
using shoal::test::Forked;
using shoal::test::refuse;
using shoal::test::stop_here;

TEST_CASE("reclaim: whichever piece of memory is refused, a dead reader's message and its cell come back after all") {
  int refused = 0;
  for (bool more = true; more;) {
    CAPTURE(++refused);
    Queue<Lock> queue(1);
    queue.put(Lock());
    Forked reader([&] {
      stop_at("ring.get.taken");
      queue.get();
    });
    reader.wait_until_stopped();
    reader.kill();
    more = refuse(refused, [] { Session::current().reclaim_all(); });
    Session::current().reclaim_all();
    CHECK(queue.empty());
    CHECK(queue.try_put(Lock()));  // as long as anyone has the cell, there is no room
  }
  CHECK(refused > 1);
}

TEST_CASE(
    "reclaim: whichever piece of memory is refused to a process that lives on, another one gives back the dead one's") {
  auto& session = SessionCore::current();
  const Hold said = allocate_shared(sizeof(bool));
  bool& more = *new (said.data()) bool(true);
  int refused = 0;
  while (more) {
    CAPTURE(++refused);
    const std::size_t before = heap_bytes_in_use();
    Forked poor([&] {
      stop_here();
      more = refuse(refused, [] { Session::current().reclaim_all(); });
      stop_here();
    });
    poor.wait_until_stopped();
    Forked victim([&] {
      const Hold block = allocate_shared(3u << 20);
      stop_here();
    });
    victim.wait_until_stopped();
    const ProcessTag dead = session.find(victim.pid());
    victim.kill();
    poor.signal(SIGCONT);
    poor.wait_until_stopped();
    CHECK(session.reclaim(dead));
    CHECK(heap_bytes_in_use() == before);
  }
  CHECK(refused > 1);
}

#endif
