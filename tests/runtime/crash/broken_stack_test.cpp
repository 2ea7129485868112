// A thread whose unwind tables are wrong says as much of its stack as it can, and goes on.
#include <shoal/internal/ipc/observe/thread_stacks.h>
#include <shoal/internal/runtime/crash/process_images.h>
#include <shoal/internal/runtime/crash/symbols.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/simple_queue.h>
#include <shoal/runtime/process.h>
#include <unistd.h>

#include <atomic>

#include "tests/support/catch.h"

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

// Spins until *rdi is not 0; the table says that its caller's frame is at rax, which is nowhere.
extern "C" void shoal_test_broken_frame(const volatile int* until);
asm(".text\n"
    ".globl shoal_test_broken_frame\n"
    ".type shoal_test_broken_frame, @function\n"
    "shoal_test_broken_frame:\n"
    ".cfi_startproc\n"
    "movq $4096, %rax\n"
    ".cfi_def_cfa %rax, 8\n"
    "1: pause\n"
    "cmpl $0, (%rdi)\n"
    "je 1b\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size shoal_test_broken_frame, .-shoal_test_broken_frame\n");

using namespace shoal;

namespace {

void run_broken(SimpleQueue<int> pids, Event end) {
  static volatile int stop = 0;
  std::thread other([&] {
    end.wait();
    stop = 1;
  });
  pids.put(::getpid());
  shoal_test_broken_frame(&stop);
  other.join();
}

}  // namespace

TEST_CASE("crash: who is asked for a stack that cannot be walked up names the call it is in, and lives") {
  SimpleQueue<int> pids;
  Event end;
  Process process({.name = "broken"}, run_broken, pids, end);
  process.start();
  const pid_t pid = pids.get();
  auto file = SessionFile::of_process(::getpid());
  REQUIRE(file);
  bool found = false;
  while (!found) {  // until it has come there
    const auto all =
        read_stacks(*file, look_at(*file), std::chrono::seconds(30), [&](auto& seen) { return seen.pid == pid; });
    REQUIRE(all.size() == 1);
    const ThreadStack& first = all[0].threads.at(0);
    REQUIRE(first.answer == ThreadStack::Answer::kGiven);
    ProcessImages images(pid);
    found = symbolize({images.place_of(first.frames.at(0))}).at(0).function == "shoal_test_broken_frame";
    if (found) CHECK(first.frames.size() == 1);
  }
  end.set();
  process.join();
  CHECK(process.exitcode() == 0);
}

#endif
