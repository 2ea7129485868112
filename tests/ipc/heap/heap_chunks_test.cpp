// Hold words that go on in chunks: what is left of them when the one who frees the block dies half-way.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <signal.h>

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
