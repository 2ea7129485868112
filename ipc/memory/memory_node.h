// Which NUMA node the heap's pages come from.
#pragma once

#include <cstdint>
#include <string>

namespace shoal {

/// Places these pages of the heap's file on the caller's NUMA node, whoever touches them first: the owner of an extent
/// usually fills it. Does nothing if there is one node, if the caller has a policy of its own (numactl, set_mempolicy),
/// or if the kernel refuses: then pages come from the node of whoever touches them first. Pages that are there stay.
/// Threads and processes: any.
///
/// The kernel keeps the wish with the file, not with a mapping. It is made through a mapping of its own, since mbind()
/// would cut the heap's one mapping into pieces, of which a process can have 65,530.
void prefer_own_memory_node(int file, std::uint64_t offset, std::uint64_t bytes) noexcept;

/// Like the above, for a given node. False if the kernel refuses.
bool prefer_memory_node(int file, std::uint64_t offset, std::uint64_t bytes, int node) noexcept;

/// Whether the machine has more than one node with memory. Reads the kernel's file below `root`: a test brings its own.
bool has_memory_nodes(const std::string& root = "");

}  // namespace shoal
