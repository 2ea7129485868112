// What errors say: the values, in words that people read.
#include <shoal/ipc/error.h>

#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>

#include <chrono>
#include <string>

#include "tests/support/catch.h"

using namespace shoal;

TEST_CASE("errors: sizes are in units that people read, and the limit is named") {
  const OutOfSharedMemory error(400 << 20, 1000, 256 << 20, "max_bytes");
  CHECK(error.what() ==
        std::string("out of shared memory: 400.00 MiB asked, 1000 bytes in use, 256.00 MiB allowed by max_bytes"));
  CHECK(error.asked() == 400 << 20);
}

TEST_CASE("errors: a time-out says what did not come") {
  constexpr std::chrono::milliseconds kSoon(1);
  Queue<int> queue(1);
  CHECK_THROWS_WITH(queue.get(kSoon), "Queue::get: timed out: no message came");
  queue.put(1);
  CHECK_THROWS_WITH(queue.put(2, kSoon), "Queue::put: timed out: the queue had no room");
  CHECK(queue.get() == 1);
  Pipe<int> pipe;
  CHECK_THROWS_WITH(pipe.first.recv(kSoon), "Connection::recv: timed out: no value came");
}
