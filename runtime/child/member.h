// A program of its own that is part of the session of whoever started it: what `shoal run` starts.
#pragma once

#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/internal/runtime/ticket/parent_ticket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace shoal {

/// What such a program needs to find the session. Travels in the environment, since its command line is its own, and
/// with it the three descriptors.
struct MemberTicket {
  static constexpr const char* kVariable = "SHOAL_MEMBER";
  static constexpr int kVersion = 2;  // of what the variable says: the launcher may be of another shoal

  ParentTicket launcher;
  ChildBlocks blocks;       // a crash record only, for the first that takes it
  int rank = 0;             // for the process table
  std::uint64_t file = 0;   // inode of the memory: tells whether the descriptors got through
  int output_is_piped = 0;  // lines are to come out when they are written, as on a terminal
  int threads = 0;          // what the launcher has put into OMP_NUM_THREADS: no wish of the user's; 0: nothing

  /// For a program that this process starts.
  static MemberTicket make(const ChildBlocks& blocks, int rank, bool output_is_piped, int threads);

  std::string to_value() const;
  /// Takes it out of the environment of this process: what that starts is no such member. Nothing if there is none,
  /// or if whoever stood between (a shell, a debugger) has closed the descriptors. Throws Error for a broken one,
  /// and for one of another version.
  static std::optional<MemberTicket> take();

  template <class Self, class Visit>
  static void for_each_number(Self& self, Visit&& visit) {
    ParentTicket::for_each_number(self.launcher, visit);
    ChildBlocks::for_each_number(self.blocks, visit);
    visit(self.rank, self.file, self.output_is_piped, self.threads);
  }
};

/// In such a program, by shoal::init: this process joins the session, ends with the launcher, and leaves word of how it
/// crashes. What it starts divides the threads that the launcher gave it. Of several programs below one that the launcher started (by a script, say) all join, and the first leaves
/// word.
void join_as_member(const MemberTicket& ticket);

}  // namespace shoal
