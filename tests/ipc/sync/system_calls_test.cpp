// What nobody else wants costs no system call. Not under TSan, whose own thread would outlive the test's.
#ifndef __SANITIZE_THREAD__
#include <linux/seccomp.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/rlock.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/ipc/value.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <mutex>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Runs `body` twice in a child, the second time where the kernel ends whoever makes a system call. True if it lived.
bool makes_no_system_call(const std::function<void()>& body) {
  Forked child([&] {
    body();
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) throw Error("no seccomp here");
    body();
    ::syscall(SYS_exit, 0);  // exit_group is forbidden
  });
  return child.join() == 0;
}

}  // namespace

TEST_CASE("sync: uncontended, no system call is made, by any of them") {
  Lock lock;
  CHECK(makes_no_system_call([&] { std::scoped_lock guard(lock); }));
  RLock recursive;
  CHECK(makes_no_system_call([&] {
    std::scoped_lock outer(recursive);
    std::scoped_lock inner(recursive);
  }));
  Semaphore semaphore(2);
  CHECK(makes_no_system_call([&] {
    semaphore.acquire();
    semaphore.release();
  }));
  Event event;
  CHECK(makes_no_system_call([&] {
    event.set();
    event.wait();
    event.clear();
  }));
  Value<int> value;
  CHECK(makes_no_system_call([&] { value.fetch_add(1); }));
  CHECK_FALSE(makes_no_system_call([] { ::syscall(SYS_getppid); }));  // it would have been seen
}
#endif
