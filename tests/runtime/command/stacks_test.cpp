// shoal stacks, as a user sees it.
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/label.h>
#include <shoal/ipc/queue.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/runtime/command/shoal_program.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using namespace shoal::test;
using nlohmann::json;

#ifndef __SANITIZE_THREAD__  // it holds signals back until a thread calls something that it knows

/// With a name that other files may see, as a program's functions have.
__attribute__((noinline)) void wait_for_a_number(Queue<int>& queue) {
  queue.get();
  asm volatile("" ::: "memory");
}

TEST_CASE("stacks: the program shows each thread with its calls and what it waits for") {
  Queue<int> queue({.name = "numbers"});
  Forked child([&] {
    SessionCore::current().describe_self("child 7", 7);
    set_label("waits \x1b[31mfor ever");
    ::prctl(PR_SET_NAME, "getter");
    wait_for_a_number(queue);
  });
  const std::string pid = std::to_string(child.pid());
  json thread, process;
  // Until it sleeps: a watchdog ends a test that never sees it.
  for (;;) {
    const ProgramResult result = run_program({kShoal, "stacks", pid, "--json"});
    REQUIRE(result.code == 0);
    const json report = json::parse(result.output);
    CHECK(report["schema"] == 1);
    CHECK(report["root"] == ::getpid());
    const auto found =
        std::ranges::find_if(report["processes"], [&](auto& seen) { return seen["pid"] == child.pid(); });
    REQUIRE(found != report["processes"].end());
    process = *found;
    thread = process["threads"].at(0);
    if (thread["waits_for"].is_string()) break;
  }
  CHECK(process["name"] == "child 7");
  CHECK(process["rank"] == 7);
  CHECK(thread["name"] == "getter");
  CHECK(thread["missing"].is_null());
  CHECK_THAT(thread["waits_for"].get<std::string>(), StartsWith("get numbers "));
  CHECK(thread["wait_seconds"] >= 0);
  CHECK(std::ranges::any_of(thread["frames"], [](auto& frame) {
    return frame["function"].is_string() &&
           frame["function"].template get<std::string>().starts_with("wait_for_a_number(");
  }));
  const ProgramResult text = run_program({kShoal, "stacks", pid});
  CHECK(text.code == 0);
  CHECK_THAT(text.output, ContainsSubstring("child 7  pid " + pid + ", rank 7: waits ?[31mfor ever"));
  CHECK_THAT(text.output, ContainsSubstring("thread " + pid + " getter   waits: get numbers"));
  CHECK_THAT(text.output, ContainsSubstring("wait_for_a_number("));
  child.signal(SIGSTOP);
  child.wait_until_stopped();
  CHECK_THAT(run_program({kShoal, "stacks", pid}).output, ContainsSubstring("no stack: the process is stopped"));
  child.signal(SIGCONT);
  queue.put(1);
  CHECK(child.join() == 0);
}

TEST_CASE("stacks: a bad session and a bad option are one clear line and a code") {
  CHECK(run_program({kShoal, "stacks", "1999999999"}).error == "shoal: there is no process 1999999999\n");
  CHECK(run_program({kShoal, "stacks", "1999999999"}).code == 1);
  CHECK(run_program({kShoal, "stacks", "--nonsense"}).code == 2);
}

#endif
