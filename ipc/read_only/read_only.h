// Blocks that nobody may write to any more, and the second view of the heap through which they are read.
#pragma once

#include <shoal/ipc/heap.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shoal {

/// In shared memory: the end of a block of type kReadOnly, on a 64-byte boundary behind its bytes. The block's maker
/// writes it once, before anyone else sees the block. Readers believe nothing of it: another process could scribble
/// here through its writable view.
struct ReadOnlyTrailer {
  static constexpr std::uint64_t kMagic = 0x796c6e6f'64616572ull;  // "readonly"
  static constexpr std::size_t kMostLabel = 168;

  std::uint64_t magic;
  std::uint64_t bytes;  // in front of the trailer
  std::uint32_t flags;  // the maker's own
  std::uint32_t label_size;
  char label[kMostLabel];
};

static_assert(sizeof(ReadOnlyTrailer) == 192);

/// The whole session's memory once more in this process, at another address, without the right to write. A pointer to a
/// read-only block leads in here, and a write through it is a SIGSEGV. Nothing is protected or unprotected when a block
/// comes or goes, so nothing has to be undone when a process is killed or a block reused, and one mapping serves any
/// number of blocks. Mapped at first use, never unmapped; threads: any. A forked process inherits it.
class ReadOnlyView {
 public:
  /// Maps it at the first call, and has faults in it told from then on (read_only_fault.h). Throws SystemError if
  /// the process has no address space left for it.
  static const std::byte* base();
  /// Null before the first call of base().
  static const std::byte* base_if_mapped() noexcept;

  /// A block of `bytes`, to be filled through the hold's data() by its maker before anyone else gets it, and then
  /// read through data_of(). The label is what errors call it; what is too long is cut.
  static Hold allocate(std::size_t bytes, std::string_view label, std::uint32_t flags = 0);
  static bool is_read_only(const Hold& hold) noexcept;

  /// Of a block of type kReadOnly; checked, so that nothing is believed that reaches outside it: DecodeError.
  struct Block {
    const std::byte* data;  // in this view
    std::size_t bytes;
    std::uint32_t flags;
  };
  static Block look_at(const Hold& hold);
};

/// What lies at an address of the read-only view.
struct ReadOnlyPlace {
  bool found = false;
  std::uint64_t byte = 0;  // from the block's first one
  std::size_t label_size = 0;
  char label[ReadOnlyTrailer::kMostLabel];
};

/// Can be called in a signal handler: loads only, and none of them faults, whatever the address and the heap's state.
ReadOnlyPlace find_read_only(const void* address) noexcept;

}  // namespace shoal
