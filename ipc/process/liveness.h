// Whether the process in a slot lives, asked of the kernel.
#pragma once

#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/ipc/fd.h>

#include <cstdint>

namespace shoal {

/// A small file of its own whose byte n is locked by the process in slot n, for as long as it lives.
///
/// It is a POSIX record lock (F_SETLK): the kernel drops it at death, even of an unreaped zombie, and
/// fork does not inherit it (an OFD lock would be inherited, and a forked child would keep its dead
/// parent "alive"). DANGER: a record lock is also dropped when its process closes *any* descriptor of
/// the file. So the descriptor is opened once a process, is used for nothing else, and never closed. If the program
/// closes it all the same, the locks are lost, and the second witness alone decides: others find this process alive by
/// its pid and start time, and this process finds others so. Processes of another pid name space, to which its pid says
/// nothing, find it dead.
/// Owned by the Session; any thread may call it.
class LivenessFile {
 public:
  /// A new one's file, of which no byte is locked.
  static Fd make_file();
  explicit LivenessFile(Fd descriptor) : file_(static_cast<Fd&&>(descriptor), "the session's liveness file") {}

  /// Throws Error if the number is not this file's any more.
  int descriptor() const { return file_.descriptor(); }
  const OwnFile& file() const noexcept { return file_; }

  /// Locks the slot's byte for this process; false if another process has it. Throws as descriptor().
  bool take(std::uint32_t slot) const;
  void give_back(std::uint32_t slot) const;
  /// True if some *other* process has the byte. A process never sees its own lock. False if this process has lost
  /// the file: what the number is now says nothing, and "locked" would have the dead alive for ever.
  bool is_taken(std::uint32_t slot) const;

 private:
  OwnFile file_;
};

/// The second witness: whether a process with this pid exists, is no zombie, and was there at that moment of
/// process_clock(). If so, the process that had the pid then lives; any later process with that pid started after its
/// death.
bool process_exists(std::int32_t pid, std::uint64_t when);

/// The kernel's number of this process's pid name space; 0 if it does not say. Costs one system call a process.
std::uint32_t own_pid_space() noexcept;

/// Whether pids of that name space are pids here; also if one of the two is not known.
bool is_own_pid_space(std::uint32_t space) noexcept;

/// True if the kernel shows what the process has mapped, and the file, which this process has mapped, is not there.
/// False if it does not show it: to another user, or if the process's first thread has ended.
bool has_surely_not_mapped(std::int32_t pid, const OwnFile& file);

/// The time now, on process_start_time()'s scale. Costs no system call, which reading the process's own start time
/// would.
std::uint64_t process_clock();

/// Field 22 of /proc/PID/stat, in clock ticks since boot; 0 if there is no such process or it is a zombie, of which no
/// thread is left.
std::uint64_t process_start_time(std::int32_t pid);

}  // namespace shoal
