#include <shoal/internal/ipc/memory/pages.h>

#include <errno.h>
#include <shoal/ipc/log.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>

namespace shoal {

bool give_back_pages(std::byte* at, std::size_t bytes) noexcept {
  const int saved = errno;
  int result = 0;
  do {
    result = ::madvise(at, bytes, MADV_REMOVE);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    static std::atomic<bool> said{false};
    // relaxed: who is first says it, and nothing else hangs on it.
    if (!said.exchange(true, std::memory_order_relaxed))
      log_warning(
          "the kernel does not take {} idle bytes of the session's memory back ({}): they stay in use, as memory does "
          "that is locked (mlock, mlockall). Said once",
          bytes, std::strerror(errno));
  }
  errno = saved;
  return result == 0;
}

}  // namespace shoal
