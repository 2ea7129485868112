#include <shoal/internal/runtime/fork_server/frozen_heap.h>

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace shoal {
namespace {

bool files_are_limited() {
  rlimit limit;
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

/// An allocator that was preloaded, or linked in, is found first.
bool malloc_is_glibcs() {
  Dl_info ours{}, the_librarys{};
  void* const found = ::dlsym(RTLD_DEFAULT, "malloc");
  return found && ::dladdr(found, &ours) != 0 &&
         ::dladdr(reinterpret_cast<void*>(&::gnu_get_libc_version), &the_librarys) != 0 &&
         ours.dli_fbase == the_librarys.dli_fbase;
}

}  // namespace

FrozenHeap::FrozenHeap() {
  if (files_are_limited())
    obstacle_ = "files are limited in size (ulimit -f)";  // a write beyond it would raise SIGXFSZ
  else if (!malloc_is_glibcs())
    obstacle_ = "malloc is not the C library's";
  else if (find_heap())
    return;
  begin_ = next_ = end_ = nullptr;
}

/// Where the heap is, and whether it may be moved.
bool FrozenHeap::find_heap() {
  std::uintptr_t heap_begin = 0, heap_end = 0;
  bool in_heap = false;
  std::ifstream mappings("/proc/self/smaps");
  for (std::string line; std::getline(mappings, line);) {
    std::uintptr_t begin, end;
    unsigned long kilobytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      in_heap = line.ends_with("[heap]");
      if (!in_heap) continue;
      // In a process that was forked it is several mappings, one behind the other.
      if (heap_end != begin) heap_begin = begin;
      heap_end = end;
    } else if (in_heap && std::sscanf(line.c_str(), "AnonHugePages: %lu", &kilobytes) == 1 && kilobytes != 0) {
      obstacle_ = "it has transparent huge pages";
      return false;
    }
  }
  // Another allocator leaves glibc's empty, though it may take memory by brk too.
  const std::size_t bytes = heap_end - heap_begin;
  if (bytes < kSmallestBytes || ::mallinfo2().arena < bytes / 2) return false;
  begin_ = next_ = reinterpret_cast<std::byte*>(heap_begin);
  end_ = begin_ + bytes;
  return true;
}

void FrozenHeap::freeze_piece() noexcept {
  if (is_done()) return;
  if (!file_) file_ = lift(Fd(::memfd_create(kName, MFD_CLOEXEC)));
  const std::size_t bytes = std::min(kPieceBytes, std::size_t(end_ - next_));
  if (!file_ || !move(next_, bytes)) return stop();
  next_ += bytes;
  if (is_done()) stop();
}

bool FrozenHeap::move(std::byte* piece, std::size_t bytes) noexcept {
  const auto offset = off_t(piece - begin_);
  // DANGER: what is written to the heap between these two calls is lost.
  if (::pwrite(file_.get(), piece, bytes, offset) != ssize_t(bytes)) return false;  // it may have shrunk
  return ::mmap(piece, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file_.get(), offset) != MAP_FAILED;
}

void FrozenHeap::stop() noexcept {
  file_.reset();
  next_ = end_;
}

}  // namespace shoal
