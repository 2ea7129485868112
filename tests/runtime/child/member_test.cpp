#include <shoal/internal/runtime/child/member.h>

#include <fcntl.h>
#include <shoal/internal/runtime/exec/exec_program.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/exit_status.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/support/catch.h"

namespace shoal {
namespace {

TEST_CASE("member: a ticket comes out of the environment as it went in, once") {
  Session::current().self();
  MemberTicket ticket = MemberTicket::make({.channel = {}, .crash_record = {{4096}, 3}}, 7, true, 5);
  CHECK(ticket.file != 0);
  ::setenv(MemberTicket::kVariable, ticket.to_value().c_str(), 1);
  const auto taken = MemberTicket::take();
  REQUIRE(taken);
  CHECK(taken->launcher.pid == ::getpid());
  CHECK(taken->launcher.tag == ticket.launcher.tag);
  CHECK(taken->launcher.memory == ticket.launcher.memory);
  CHECK(taken->launcher.liveness == ticket.launcher.liveness);
  CHECK(taken->launcher.lifeline == ticket.launcher.lifeline);
  CHECK(taken->blocks.crash_record.block == ticket.blocks.crash_record.block);
  CHECK(taken->blocks.crash_record.word == 3);
  CHECK(taken->rank == 7);
  CHECK(taken->output_is_piped == 1);
  CHECK(taken->threads == 5);
  CHECK(std::getenv(MemberTicket::kVariable) == nullptr);
  CHECK_FALSE(MemberTicket::take());
}

TEST_CASE("member: where the descriptors did not get through there is no ticket") {
  MemberTicket ticket = MemberTicket::make({}, 0, false, 0);
  const int closed = GENERATE(-1, 1000);
  ticket.launcher.memory = closed;
  ::setenv(MemberTicket::kVariable, ticket.to_value().c_str(), 1);
  CHECK_FALSE(MemberTicket::take());
  // The number is another file's by now.
  ticket.launcher.memory = ticket.launcher.lifeline;
  ::setenv(MemberTicket::kVariable, ticket.to_value().c_str(), 1);
  CHECK_FALSE(MemberTicket::take());
}

TEST_CASE("member: a broken ticket is refused by name") {
  for (const char* bad :
       {"", "hello", "v", "v,", "v2", "v2,", "1,2,3", "v2,1,2,3", "vx,1,2,3,4,5,6,7,8,9,10,11,0,0",
        "1,2,3,4,5,6,7,8,9,10,11,0,0", "v2,1,2,3,4,5,6,7,8,9,10,11,0,0,1", "v2,1,2,3,4,5,6,7,8,9,10,11,0,0x"}) {
    ::setenv(MemberTicket::kVariable, bad, 1);
    CHECK_THROWS_WITH(MemberTicket::take(), ContainsSubstring(std::string("SHOAL_MEMBER=") + bad));
  }
}

TEST_CASE("member: a ticket of another version says so, whatever its numbers are") {
  for (const char* other : {"v1,1,2,3,4,5,6,7,8,9,10,11,0", "v3,1,2,3", "v3"}) {
    ::setenv(MemberTicket::kVariable, other, 1);
    CHECK_THROWS_WITH(MemberTicket::take(), ContainsSubstring(std::string("has version ") + other[1]));
  }
}

/// What a shell says on a pipe that is its output.
std::string said_by(ProgramStart start, const std::string& script) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  start.path = "/bin/sh";
  start.arguments = {"sh", "-c", script};
  if (start.standard[1] == 1) start.standard[1] = writing.get();
  if (start.standard[2] == -1) start.standard[2] = writing.get();
  StartedProcess started = exec_program(start, "a shell", "");
  writing.reset();
  std::string text;
  char bytes[512];
  for (ssize_t got; (got = ::read(reading.get(), bytes, sizeof bytes)) > 0;) text.append(bytes, std::size_t(got));
  CHECK(reap(started.process).succeeded());
  return text;
}

TEST_CASE("exec: a program has the descriptors, the group and the environment that it was given, and no more") {
  CHECK(said_by({.environment = {"ONE=1"}}, "echo $ONE-$HOME") == "1-\n");
  CHECK(said_by({.standard = {0, 1, -1}}, "echo error >&2") == "error\n");
  CHECK(said_by({.own_group = true}, "read a b c d group rest < /proc/self/stat; test $group = $$ && echo leads") ==
        "leads\n");
  const Fd kept(::open("/dev/null", O_RDONLY | O_CLOEXEC)), other(::open("/dev/null", O_RDONLY));
  const std::string both = "for i in " + std::to_string(kept.get()) + " " + std::to_string(other.get()) +
                           "; do test -e /proc/$$/fd/$i && echo $i; done; true";
  CHECK(said_by({.descriptors = {kept.get()}}, both) == std::to_string(kept.get()) + "\n");
  CHECK(said_by({.cpus = CpuSet::of_this_thread(), .ignores_interrupt = true}, "kill -INT $$; echo survived") ==
        "survived\n");
}

TEST_CASE("exec: standard descriptors may change places") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd reading(ends[0]), writing(ends[1]);
  // Output to what is error here, error to the pipe.
  const Fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ProgramStart start{.path = "/bin/sh",
                     .arguments = {"sh", "-c", "echo out; echo err >&2"},
                     .standard = {nothing.get(), nothing.get(), writing.get()}};
  StartedProcess started = exec_program(start, "a shell", "");
  CHECK(reap(started.process).succeeded());
  char bytes[16];
  CHECK(std::string(bytes, std::size_t(std::max<ssize_t>(0, ::read(reading.get(), bytes, sizeof bytes)))) == "err\n");
}

TEST_CASE("exec: a program that cannot be executed is told of, with a remedy, and leaves nothing") {
  CHECK_THROWS_WITH(exec_program({.path = "/nowhere", .arguments = {"x"}}, "the program x", "write it first"),
                    ContainsSubstring("executing the program x") && ContainsSubstring("write it first"));
}

TEST_CASE("exec: of variables that are set twice the last word counts, and others stay") {
  ::setenv("SHOAL_TEST_KEPT", "yes", 1);
  const auto all = environment_with({{"A", "1"}, {"A", "2"}, {"SHOAL_TEST_NEW", ""}});
  CHECK(std::count(all.begin(), all.end(), "A=2") == 1);
  CHECK(std::count(all.begin(), all.end(), "A=1") == 0);
  CHECK(std::count(all.begin(), all.end(), "SHOAL_TEST_NEW=") == 1);
  CHECK(std::count(all.begin(), all.end(), "SHOAL_TEST_KEPT=yes") == 1);
  ::unsetenv("SHOAL_TEST_KEPT");
}

}  // namespace
}  // namespace shoal
