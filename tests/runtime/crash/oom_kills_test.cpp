#include <shoal/ipc/fd.h>
#include <shoal/runtime/crash/oom_kills.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/support/catch.h"

namespace shoal {
namespace {

TEST_CASE("oom kills: a counter that grows is told once") {
  char path[] = "/tmp/shoal-events-XXXXXX";
  Fd file(::mkstemp(path));
  auto write = [&](int kills) { std::ofstream(path) << "low 0\nmax 4\noom 7\noom_kill " << kills << "\n"; };
  write(3);
  OomKills events(path);
  CHECK_FALSE(events.have_grown());
  write(4);
  CHECK(events.have_grown());
  CHECK_FALSE(events.have_grown());
  ::unlink(path);
  CHECK_FALSE(events.have_grown());
}

TEST_CASE("oom kills: this process has a counter, in its cgroup or of the machine") {
  OomKills events = OomKills::of_this_cgroup();
  CHECK(::access(events.file().c_str(), R_OK) == 0);
  CHECK_FALSE(events.have_grown());
}

}  // namespace
}  // namespace shoal
