// What a process needs to find its parent's session and its own channel.
#pragma once

#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shoal {

/// Travels on the command line of a process that starts by exec. Descriptors have the same numbers in
/// parent and child.
struct StartTicket {
  enum class Role { kChild, kForkServer };

  Role role = Role::kChild;
  pid_t parent = 0;
  std::uint32_t parent_tag = 0;    // its ProcessTag
  int memory = -1, liveness = -1;  // the session's descriptors
  int requests = -1;               // socket to the fork server, -1 if there is none yet
  pid_t fork_server = 0;
  int served = -1;     // kForkServer: the end of that socket which it reads
  int spares = 0;      // kForkServer: how many to keep
  int freeze = 1;      // kForkServer: whether it may freeze its heap
  int lifeline = -1;   // its parent's
  ChildBlocks blocks;  // kChild

  std::string to_argument() const;
  /// Nothing if the argument is an ordinary one of the user's. Throws Error if it is a ticket, but a
  /// broken one.
  static std::optional<StartTicket> from_argument(std::string_view argument);
};

}  // namespace shoal
