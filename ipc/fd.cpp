#include <shoal/ipc/fd.h>
#include <unistd.h>

namespace shoal {

Fd::~Fd() {
  // Not repeated on EINTR: Linux has freed the number by then, and another thread may own it.
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace shoal
