#include <shoal/ipc/fd.h>

#include <errno.h>
#include <fcntl.h>
#include <shoal/ipc/error.h>
#include <unistd.h>

namespace shoal {

Fd::~Fd() {
  // Not repeated on EINTR: Linux has freed the number by then, and another thread may own it.
  if (descriptor_ >= 0) ::close(descriptor_);
}

Fd lift(Fd fd) noexcept {
  if (!fd || fd.get() > STDERR_FILENO) return fd;
  return Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

PipeEnds make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("making a pipe", errno, "raise RLIMIT_NOFILE (ulimit -n)");
  PipeEnds pipe{Fd(ends[0]), Fd(ends[1])};
  pipe.reading = lift(std::move(pipe.reading));
  pipe.writing = lift(std::move(pipe.writing));
  if (!pipe.reading || !pipe.writing) throw SystemError("making a pipe", errno, "raise RLIMIT_NOFILE (ulimit -n)");
  return pipe;
}

}  // namespace shoal
