// Whether the process in a slot lives, asked of the kernel.
#pragma once

#include <shoal/ipc/fd.h>

#include <cstdint>

namespace shoal {

/// A small file of its own whose byte n is locked by the process in slot n, for as long as it lives.
///
/// It is a POSIX record lock (F_SETLK): the kernel drops it at death, even of an unreaped zombie, and
/// fork does not inherit it (an OFD lock would be inherited, and a forked child would keep its dead
/// parent "alive"). DANGER: a record lock is also dropped when its process closes *any* descriptor of
/// the file. So the descriptor is opened once a process, is used for nothing else, and never closed.
/// Owned by the Session; any thread may call it.
class LivenessFile {
 public:
  static LivenessFile create();
  explicit LivenessFile(Fd descriptor) : descriptor_(static_cast<Fd&&>(descriptor)) {}

  int descriptor() const { return descriptor_.get(); }

  /// Locks the slot's byte for this process; false if another process has it.
  bool take(std::uint32_t slot) const;
  void give_back(std::uint32_t slot) const;
  /// True where some *other* process has the byte. A process never sees its own lock.
  bool is_taken(std::uint32_t slot) const;

 private:
  Fd descriptor_;
};

/// The second witness: a process with this pid exists, is no zombie, and was there at that moment of process_clock(). A
/// process that had the pid then lives, or every later one that has it started after its death.
bool process_exists(std::int32_t pid, std::uint64_t when);

/// Now, as process_start_time() counts. Costs no system call, which reading one's own start time would.
std::uint64_t process_clock();

/// Field 22 of /proc/PID/stat, in clock ticks since boot; 0 where there is no such process or it is a
/// zombie.
std::uint64_t process_start_time(std::int32_t pid);

}  // namespace shoal
