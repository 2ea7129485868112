// Planted faults: every test case here, but the first two, is run by ctest in the hope that the guard or the watchdog ends it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/support/snapshot.h"

TEST_CASE("a clean test passes") {
  const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  close(descriptor);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  CHECK(shoal::test::test_scale() >= 1);
}

TEST_CASE("what a device's driver keeps open is no leak, where there is a driver, and nothing else is excused") {
  using shoal::test::Snapshot;
  const auto leaks = [](const Snapshot& after) { return shoal::test::find_leaks(Snapshot{}, after, {}).size(); };
  Snapshot without;
  without.descriptors = {{3, "pipe:[123]"}, {4, "anon_inode:[eventfd]"}};
  without.mappings = {{"/dev/zero (deleted)", 4096}};
  CHECK(leaks(without) == 3);
  Snapshot with = without;
  with.descriptors[5] = "/dev/nvidiactl";
  with.descriptors[6] = "/memfd:.nvidia_drv.0 (deleted)";
  with.mappings["/dev/nvidia0"] = with.mappings["/dev/shm/cuda.shm.0.1f.1"] = 4096;
  with.descriptors[8] = "socket:[456]";
  CHECK(leaks(with) == 0);
  Snapshot began_with;
  began_with.descriptors[5] = "/dev/nvidiactl";
  CHECK(shoal::test::find_leaks(began_with, with, {}).size() == 1);  // a socket that came later
  with.descriptors[7] = "/memfd:shoal-heap (deleted)";
  with.mappings["/memfd:shoal-heap (deleted)"] = 4096;
  CHECK(leaks(with) == 2);
}

TEST_CASE("a leaked descriptor", "[.fault]") { CHECK(open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0); }

TEST_CASE("a leaked mapping", "[.fault]") {
  const int descriptor = memfd_create("planted", MFD_CLOEXEC);
  REQUIRE(ftruncate(descriptor, 8192) == 0);
  CHECK(mmap(nullptr, 8192, PROT_READ, MAP_SHARED, descriptor, 0) != MAP_FAILED);
  close(descriptor);
}

TEST_CASE("a leaked child", "[.fault]") {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // ends by itself if the guard should fail to end it
    pause();
  }
  CHECK(child > 0);
}

TEST_CASE("a hang", "[.fault]") {
  while (true) pause();
}

TEST_CASE("a hang that computes", "[.fault]") {
  while (true) asm volatile("");
}

TEST_CASE("a slow test passes") {
  // Two and a half time-outs of those that ctest sets for it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < end) continue;
}

TEST_CASE("a hang of a child", "[.fault]") {
  const pid_t child = fork();
  if (child == 0) execl("/bin/sleep", "sleep", "600", static_cast<char*>(nullptr));
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
}
