// A program of its own that is part of the session of whoever started it: what `shoal run` starts.
#pragma once

#include <shoal/internal/ipc/layout/block_header.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace shoal {

/// What such a program needs to find the session. Travels in the environment, since its command line is its own, and
/// with it the three descriptors.
struct MemberTicket {
  static constexpr const char* kVariable = "SHOAL_MEMBER";

  pid_t launcher = 0;
  std::uint32_t launcher_tag = 0;  // its ProcessTag
  int memory = -1, liveness = -1;  // the session's descriptors
  int lifeline = -1;               // the launcher's
  HoldRef crash_record;            // in transit; for the first that takes it
  int rank = 0;                    // for the process table
  std::uint64_t file = 0;          // inode of the memory: tells whether the descriptors got through
  bool output_is_piped = false;    // lines are to come out when they are written, as on a terminal

  /// For a program that this process starts. The descriptors are this process's.
  static MemberTicket make(HoldRef crash_record, int rank, bool output_is_piped);

  std::string to_value() const;
  /// Takes it out of the environment of this process: what that starts is no such member. Nothing where there is none,
  /// or where whoever stood between (a shell, a debugger) has closed the descriptors. Throws Error for a broken one.
  static std::optional<MemberTicket> take();
};

/// In such a program, by shoal::init: this process joins the session, ends with the launcher, and leaves word of how it
/// crashes. Of several programs below one that the launcher started (by a script, say) all join, and the first leaves
/// word.
void join_as_member(const MemberTicket& ticket);

}  // namespace shoal
