#include <shoal/internal/runtime/child/descendants.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/process.h>
#include <signal.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>

#include "tests/runtime/start/methods.h"

namespace shoal {
namespace {

TEST_CASE("descendants: a process killed while it gives back what another had leaves nothing of either") {
  const std::string label =
      GENERATE("reclaim.rings_done", "reclaim.hold", "reclaim.blocks_done", "reclaim.extents_done");
  CAPTURE(label);
  Queue<std::string> queue(4);
  Process first(
      {.name = "first"},
      [](Queue<std::string> held) {
        held.put(std::string(100'000, 'x'));
        ::raise(SIGKILL);
      },
      queue);
  first.start();
  int descriptor = first.sentinel();
  wait_readable({&descriptor, 1}, Deadline::never());  // dead, and nobody has looked after it
  const ProcessTag dead = SessionCore::current().find(first.pid());
  REQUIRE(dead);
  Process second(
      {.name = "second"},
      [](std::uint32_t tag, const std::string& where, Queue<std::string>) {
        kill_at(where.c_str());
        SessionCore::current().reclaim(ProcessTag::from_word(tag));
      },
      dead.word(), label, queue);
  second.start();
  second.join();
  CHECK(second.exitcode() == -SIGKILL);
  CHECK_FALSE(SessionCore::current().find(first.pid()));
  first.join();
  CHECK(queue.get().size() == 100'000);
  CHECK_FALSE(queue.try_get());
}

}  // namespace
}  // namespace shoal
