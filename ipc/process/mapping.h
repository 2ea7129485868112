// The heap's file in a process's address space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace shoal {

/// Where in the file the parts lie that a mapping treats differently.
struct MappingPlan {
  std::uint64_t bytes;  // of the whole file
  std::uint64_t data;   // from here to the end: blocks; in front of it: tables and headers
};

enum class MappingAccess { kWritable, kReadOnly };

/// Maps the whole file, and tells the kernel how it is used:
///
/// * No core dump has it (MADV_DONTDUMP). A dump reads what is mapped, and reading a hole of a memfd makes a page: one
///   abort() would bring the whole terabyte into being, and write it down. Headers are left out, too: they are as
///   sparse as the data, and `shoal top` shows what they say while a process of the session lives.
/// * The data may have huge pages if the system allows them for shared memory, headers may not: 64 bytes of them
///   that are used would take 2 MiB.
///
/// Null with errno if there is no room.
std::byte* map_heap(int file, const MappingPlan& plan, MappingAccess access) noexcept;

/// Ends a mapping.
struct Unmap {
  std::uint64_t bytes = 0;
  void operator()(std::byte* at) const noexcept;
};
/// A mapping that nobody uses yet.
using OwnedMapping = std::unique_ptr<std::byte, Unmap>;

}  // namespace shoal
