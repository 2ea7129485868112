// What a program needs to become a part of the session of whoever has started it.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace shoal {

class SessionCore;

/// The part that all tickets have. Descriptors have the same numbers in both processes.
struct ParentTicket {
  pid_t pid = 0;
  std::uint32_t tag = 0;           // its ProcessTag
  int memory = -1, liveness = -1;  // the session's descriptors
  int lifeline = -1;               // its reading end

  static ParentTicket of_this_process();
  ProcessTag process_tag() const { return ProcessTag::from_word(tag); }
  /// Those that the program has to inherit.
  std::vector<int> descriptors() const { return {memory, liveness, lifeline}; }

  /// In that program: it ends with its parent from now on, and joins the session. Takes the descriptors over.
  SessionCore& join() const;

  template <class Self, class Visit>
  static void for_each_number(Self& self, Visit&& visit) {
    visit(self.pid, self.tag, self.memory, self.liveness, self.lifeline);
  }
};

}  // namespace shoal
