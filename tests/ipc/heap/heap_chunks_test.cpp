// Hold words that go on in chunks: what is left of them when the one who frees the block dies half-way.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/shared_bytes.h>
#include <signal.h>

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;

TEST_CASE("heap: chunks of hold words are freed by whoever comes after one who died while it freed them") {
  const std::size_t before = heap_bytes_in_use();
  // Frees pass the point in this order: the chunks, then the block itself.
  for (const char* label : {"heap.close.start", "heap.chunk.taken", "heap.chunk.unlinked", "heap.free.before_hint"})
    for (int skip = 0; skip < 4; ++skip) {
      CAPTURE(label, skip);
      {
        Forked child([&] {
          Hold block = allocate_shared(100);
          std::vector<Hold> holds;
          for (int i = 0; i < 2500; ++i) holds.push_back(block.share());
          kill_at(label, skip);
          block.release();
          holds.clear();
        });
        const int result = child.join();
        CHECK((result == -SIGKILL || result == 0));
      }
      Session::current().reclaim_all();
      CHECK(heap_bytes_in_use() == before);
    }
}

// A chunk is a block as well. Once its words seemed to go on in the next chunk, where a reclaimer found the hold of a
// message a second time, under a name that no message had, and gave it up.
TEST_CASE("heap: what a dead process sent keeps its hold, also in a block's second chunk") {
  constexpr std::size_t kFirst = 7 + 1000;  // words in the header and in the first chunk
  const std::size_t before = heap_bytes_in_use();
  {
    Queue<SharedBytes> queue(2 * kFirst);
    SharedBytes bytes(100);
    std::ranges::fill(bytes.span(), std::byte('x'));
    for (std::size_t i = 0; i < kFirst; ++i) queue.put(bytes);
    Forked sender([&] { queue.put(bytes); });
    REQUIRE(sender.join() == 0);
    Session::current().reclaim_all();
    bytes = {};
    for (std::size_t i = 0; i <= kFirst; ++i) {
      const SharedBytes received = queue.get();
      CHECK(std::ranges::count(received.span(), std::byte('x')) == 100);
    }
  }
  CHECK(heap_bytes_in_use() == before);
}
