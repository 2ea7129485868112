// SessionCore: what shoal's own code does with a session: its memory, its process table, its descriptors, its dead.
#pragma once

#include <shoal/internal/ipc/process/session.h>

#include <cstddef>
#include <memory>
#include <mutex>

namespace shoal {

struct ActivityRecord;
class AtFork;
class LivenessFile;
class OwnFile;
struct ProcessRecord;
struct SessionLayout;
struct Unmap;

/// This process's session. There is one object a process, and users see it as its base. Threads: any. When a process of
/// the session dies, another one that notices it calls reclaim().
class SessionCore final : public Session {
 public:
  /// The descriptors that a started process has to inherit to join the session.
  struct Descriptors {
    int memory = -1;
    int liveness = -1;
  };

  /// As Session::current().
  static SessionCore& current() { return static_cast<SessionCore&>(Session::current()); }
  /// Makes this process part of an existing session and takes the descriptors over. A started process calls it before
  /// it uses anything else of shoal.
  static SessionCore& join(Descriptors descriptors);

  /// The session's descriptors. Throws Error if the program has closed one or opened another file under its number: a
  /// process started with it would join something else.
  Descriptors descriptors() const;
  /// Like descriptors(), but without exceptions or allocations: -1 for a descriptor that is not open any more.
  Descriptors descriptors_if_open() const noexcept;
  /// The heap's file as this process opened it.
  const OwnFile& memory_file() const noexcept { return *memory_; }

  std::byte* base() const noexcept { return base_; }  ///< where this process has mapped the session's memory
  SessionLayout& layout() const noexcept { return *reinterpret_cast<SessionLayout*>(base_); }  ///< its first page
  ProcessRecord& record(std::uint32_t slot) const;                                             ///< of the process table
  ActivityRecord& activity(std::uint32_t slot) const;  ///< what the process of the slot does

  /// This process's tag if it has one; takes no slot.
  ProcessTag self_if_known() const noexcept { return ProcessTag::from_word(self_.load(std::memory_order_relaxed)); }

  /// Writes this process's name and rank (-1: none) into the process table.
  void describe_self(const std::string& name, int rank);
  /// Says that this process leaves of its own will, so its death is no failure to processes that wait for it. Call it
  /// last: use nothing of shoal afterwards.
  void leave() noexcept;

  /// The tag of the process with this pid, alive or dead and not reclaimed yet; an empty tag if there is none.
  ProcessTag find(std::int32_t pid);

  /// Gives back all that a dead process had; does nothing if it lives or was reclaimed already. Returns false if
  /// another process reclaims at the moment, or something is left: a cell of a ring that the dead process had no hold
  /// on, a name whose lock somebody keeps. May be repeated, and may be killed half-way.
  bool reclaim(ProcessTag dead);

  /// For a process made by fork(): gives this process a hold of its own for every hold that the parent had at the fork,
  /// so that copies of handles go on working whatever the parent does. A handle that the parent drops meanwhile is not
  /// counted: its copies must not be used. Throws Error if the parent died meanwhile, since some of its holds are gone
  /// then; what this process has already it gives up as it ends. Without this call the copies last only as long as the
  /// parent keeps the originals.
  void adopt_inherited_holds();
  /// The tag of the process that forked this one; the holds that this process inherited belong to it until
  /// adopt_inherited_holds().
  ProcessTag forked_from() const noexcept { return ProcessTag::from_word(forked_from_); }

 private:
  // Its functions need more than it has.
  friend class Session;
  SessionCore(Descriptors descriptors, std::unique_ptr<std::byte, Unmap>& mapping);
  static SessionCore& create();
  /// Takes the descriptors over, unless it throws.
  static SessionCore& install(Descriptors descriptors, std::unique_ptr<std::byte, Unmap> mapping);
  static void tell_others(SessionCore& session) noexcept;
  static void after_fork() noexcept;
  /// Makes this process's allocator, which is never destroyed. Defined in the heap's folder, which this class does not
  /// know.
  static Heap* make_heap(std::byte* base);
  ProcessTag take_slot();
  bool try_slot(std::uint32_t slot);

  static const AtFork at_fork_;
  std::uint32_t forked_from_ = 0;
  std::mutex slot_mutex_;     // held while this process takes a slot
  std::mutex reclaim_mutex_;  // held while reclaiming: a slot's reclaimer is a process, so this keeps its threads apart
  std::byte* base_;
  std::unique_ptr<OwnFile> memory_;
  std::unique_ptr<LivenessFile> liveness_;
};

}  // namespace shoal
