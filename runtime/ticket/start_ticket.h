// What a started process of this very program needs to find its parent's session and its own channel.
#pragma once

#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/internal/runtime/ticket/parent_ticket.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace shoal {

/// Travels on the command line of a process that starts by exec.
struct StartTicket {
  enum class Role { kChild, kForkServer };

  Role role = Role::kChild;
  ParentTicket parent;
  int requests = -1;  // socket to the fork server, -1 if there is none yet
  pid_t fork_server = 0;
  int served = -1;     // kForkServer: the end of that socket which it reads
  int spares = 0;      // kForkServer: how many to keep
  int freeze = 1;      // kForkServer: whether it may freeze its heap
  ChildBlocks blocks;  // kChild

  std::string to_argument() const;
  /// Nothing if the argument is an ordinary one of the user's. Throws Error if it is a ticket, but a
  /// broken one.
  static std::optional<StartTicket> from_argument(std::string_view argument);

  template <class Self, class Visit>
  static void for_each_number(Self& self, Visit&& visit) {
    ParentTicket::for_each_number(self.parent, visit);
    visit(self.requests, self.fork_server, self.served, self.spares, self.freeze);
    ChildBlocks::for_each_number(self.blocks, visit);
  }
};

}  // namespace shoal
