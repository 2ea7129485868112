#include <shoal/internal/runtime/fork_server/frozen_heap.h>

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

}  // namespace

FrozenHeap::FrozenHeap() {
  if (files_are_limited()) return;  // a write beyond it would raise SIGXFSZ
  std::uintptr_t heap_begin = 0, heap_end = 0;
  std::ifstream mappings("/proc/self/maps");
  for (std::string line; std::getline(mappings, line);) {
    std::uintptr_t begin, end;
    if (!line.ends_with("[heap]") || std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    // Of a process that was forked it is several mappings, one behind the other.
    if (heap_end != begin) heap_begin = begin;
    heap_end = end;
  }
  // Another allocator leaves glibc's empty, though it may take memory by brk too.
  const std::size_t bytes = heap_end - heap_begin;
  if (bytes < kSmallestBytes || ::mallinfo2().arena < bytes / 2) return;
  begin_ = next_ = reinterpret_cast<std::byte*>(heap_begin);
  end_ = begin_ + bytes;
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
