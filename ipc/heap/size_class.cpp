#include <shoal/internal/ipc/heap/size_class.h>

#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>

namespace shoal {

void SizeClass::refuse(std::uint64_t bytes) {
  const std::uint64_t in_use =
      Session::exists() ? SessionCore::current().layout().extents_committed.load() * kExtentBytes : 0;
  throw OutOfSharedMemory(bytes, in_use, kMost, "the address space of a process");
}

}  // namespace shoal
