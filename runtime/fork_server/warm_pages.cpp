#include <shoal/internal/runtime/fork_server/warm_pages.h>

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace shoal {
namespace {

// Of one segment. The code of libtorch is a hundred times as large, its variables twice.
constexpr std::size_t kMostCode = 4u << 20, kMostVariables = 512u << 10;
constexpr std::size_t kStack = 32u << 10;

const auto kPage = std::uintptr_t(::sysconf(_SC_PAGESIZE));

std::uintptr_t page_of(std::uintptr_t address) { return address / kPage * kPage; }

}  // namespace

WarmPages::WarmPages() {
  auto note = [](dl_phdr_info* image, std::size_t, void* parts) {
    // The first part of the variables is read-only once it is relocated.
    std::uintptr_t first_written = 0;
    for (const ElfW(Phdr) & segment : std::span(image->dlpi_phdr, image->dlpi_phnum))
      if (segment.p_type == PT_GNU_RELRO) first_written = page_of(image->dlpi_addr + segment.p_vaddr + segment.p_memsz);
    for (const ElfW(Phdr) & segment : std::span(image->dlpi_phdr, image->dlpi_phnum)) {
      if (segment.p_type != PT_LOAD) continue;
      const bool written = segment.p_flags & PF_W;
      std::uintptr_t begin = page_of(image->dlpi_addr + segment.p_vaddr);
      const std::uintptr_t end = page_of(image->dlpi_addr + segment.p_vaddr + segment.p_memsz + kPage - 1);
      if (written) begin = std::max(begin, first_written);
      if (begin < end && end - begin <= (written ? kMostVariables : kMostCode))
        static_cast<std::vector<Part>*>(parts)->push_back(
            {reinterpret_cast<std::byte*>(begin), std::size_t(end - begin), written});
    }
    return 0;
  };
  ::dl_iterate_phdr(note, &parts_);
}

void WarmPages::bring_in() const noexcept {
  for (const Part& part : parts_)
    ::madvise(part.begin, part.bytes, part.written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  std::byte here;
  auto* stack = reinterpret_cast<std::byte*>(page_of(reinterpret_cast<std::uintptr_t>(&here)));
  ::madvise(stack - kStack, kStack, MADV_POPULATE_WRITE);
}

}  // namespace shoal
