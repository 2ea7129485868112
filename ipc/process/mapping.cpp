#include <shoal/internal/ipc/process/mapping.h>

#include <sys/mman.h>

namespace shoal {
namespace {

/// Where the heap is mapped in every process if nothing is there: equal addresses make debugging easier,
/// and nothing depends on it. Not under sanitizers, whose own memory lies around there.
void* preferred_address(MappingAccess access) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)access;
  return nullptr;
#else
  return access == MappingAccess::kWritable ? reinterpret_cast<void*>(0x200000000000) : nullptr;
#endif
}

}  // namespace

std::byte* map_heap(int file, const MappingPlan& plan, MappingAccess access) noexcept {
  const int protection = access == MappingAccess::kWritable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* mapped = ::mmap(preferred_address(access), plan.bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* at = static_cast<std::byte*>(mapped);
  ::madvise(at, plan.bytes, MADV_DONTDUMP);
  // Refused if the kernel has no huge pages, which is as well.
  ::madvise(at, plan.data, MADV_NOHUGEPAGE);
  ::madvise(at + plan.data, plan.bytes - plan.data, MADV_HUGEPAGE);
  return at;
}

void Unmap::operator()(std::byte* at) const noexcept { ::munmap(at, bytes); }

}  // namespace shoal
