// Planted faults: every test case here, but one, is run by ctest in the hope that the guard or the watchdog ends it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/guard.h"

TEST_CASE("a clean test passes") {
  const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  close(descriptor);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  CHECK(shoal::test::test_scale() >= 1);
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

TEST_CASE("a hang of a child", "[.fault]") {
  const pid_t child = fork();
  if (child == 0) execl("/bin/sleep", "sleep", "600", static_cast<char*>(nullptr));
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
}
