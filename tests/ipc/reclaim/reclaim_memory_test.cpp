// A reclaimer that lacks private memory somewhere in the middle: who looks next finds all that it needs.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>

#include <cstdlib>
#include <new>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

// The sanitizers have allocators of their own, and want all of operator new or none.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

using namespace shoal;
using shoal::test::Forked;

namespace {

thread_local int until_refused = 0;  // allocations, the refused one counted; 0: none is refused

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (until_refused > 0 && --until_refused == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

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
    until_refused = refused;
    Session::current().reclaim_all();
    more = until_refused == 0;
    until_refused = 0;
    Session::current().reclaim_all();
    CHECK(queue.empty());
    CHECK(queue.try_put(Lock()));  // as long as anyone has the cell, there is no room
  }
  CHECK(refused > 1);
}

#endif
