#include <shoal/internal/runtime/os/pidfd.h>

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/container/small_vector.hpp>
#include <chrono>

namespace shoal {

// By number: glibc 2.36 declares the wrappers in a header that C++ cannot link against.
Fd open_pidfd(pid_t pid) {
  Fd process = lift(Fd(int(::syscall(SYS_pidfd_open, pid, 0))));  // CLOEXEC by itself
  if (!process) throw SystemError(fmt::format("opening a descriptor of process {}", pid), errno);
  return process;
}

bool send_signal(const Fd& process, int signal) noexcept {
  return ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
}

bool wait_readable(std::span<const int> descriptors, Deadline deadline) {
  boost::container::small_vector<pollfd, 16> polled;
  for (int descriptor : descriptors) polled.push_back({descriptor, POLLIN, 0});
  for (;;) {
    auto left = deadline.left(std::chrono::hours(1));
    timespec timeout{time_t(left.count() / 1'000'000'000), long(left.count() % 1'000'000'000)};
    int ready = ::ppoll(polled.data(), polled.size(), &timeout, nullptr);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw SystemError("waiting for processes", errno);
    if (deadline.passed()) return false;
  }
}

bool is_readable(int descriptor) { return wait_readable({&descriptor, 1}, Deadline::now()); }

}  // namespace shoal
