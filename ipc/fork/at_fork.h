// What the parts of shoal do around a fork of this process.
#pragma once

#include <atomic>
#include <cstdint>

namespace shoal {

/// The order in which they do it: in parent and child from first to last, before the fork from last to first. Within a
/// stage there is no order: no step relies on another one of its stage, or takes a lock that is held while another
/// one's is asked for.
///
///   | stage    | who                      | before   | in the child                                                   |
///   |----------|--------------------------|----------|----------------------------------------------------------------|
///   |          | the fork count           |          | one more: what was made before is another process's            |
///   | kProcess | lifeline                 | its lock | the writing end is closed, or the parent's end goes unnoticed  |
///   |          | service threads          |          | there are none                                                 |
///   |          | signals to stop          |          | lock anew; what is noted stays                                 |
///   | kSession | session                  |          | no slot; locks anew; what half of create() had told others     |
///   | kHeap    | heap                     | lock of  | caches anew, the parent's leaked; the parent's count of        |
///   |          |                          | the holds| inherited handles is kept for whoever adopts                   |
///   |          | memory known by address  | its lock | inherited                                                      |
///   | kRooms   | offers of descriptors    | its lock | duplicates and socket closed; its own at the next use          |
///   |          | readiness of connections | its lock | no connection is held by its thread; its own at the next use   |
///   |          | listeners; death watch   | its lock | sockets, claims, pidfds closed; the listeners do nothing       |
///   |          | attaching                |          | lock anew                                                      |
///   |          | trace buffer             |          | its own at the next event                                      |
///   |          | read-only view           | its lock | inherited                                                      |
///   |          | fork server's client     |          | lock anew; the socket is inherited, the server is no child     |
///   |          | lasting thread           |          | its own at the next use                                        |
///   |          | OOM kills                | its lock | inherited                                                      |
///   |          | devices, pools' keeper   |          | their own at the next use                                      |
///   |          | TorchScript modules      | its lock | inherited; one that was being made is made again               |
///   |          | files in the heap        |          | lock anew                                                      |
///   |          | list of mailboxes        |          | its own at the next use                                        |
///
/// docs/forks.md says why. The C library calls these in fork(), with a malloc that works: behind the handlers that the
/// program has given to pthread_atfork before the fork, and ahead of those in parent and child. It does not call them
/// in vfork, _Fork or clone.
enum class ForkStage { kProcess, kSession, kHeap, kRooms };

/// An object of static storage, one for each room, `[[gnu::init_priority(101)]]`: ahead of all other initializers, so
/// that no fork comes between a room's first use and its steps. Any step may be null, and finds that its room was
/// never used.
class AtFork {
 public:
  using Step = void (*)() noexcept;
  struct Steps {
    ForkStage stage = ForkStage::kRooms;
    Step before = nullptr, in_parent = nullptr;
    /// The child has one thread: locks were taken before, or are made anew.
    Step in_child = nullptr;
  };

  explicit AtFork(const Steps& steps) noexcept;
  AtFork(const AtFork&) = delete;

 private:
  friend struct AtForkList;
  const Steps steps_;
  AtFork* next_ = nullptr;
};

namespace detail {
inline constinit std::atomic<std::uint32_t> fork_count{0};
inline constinit std::atomic<bool> forks_alone{false};
}  // namespace detail

/// Whether the process had one thread when its fork began: then nobody holds a lock, and nothing is half made. For the
/// steps of that fork, in parent and child. They leave memory alone then: each page that is written to after a fork is
/// copied, in the parent and in the child, which costs more than most steps.
inline bool forks_alone() noexcept {
  return detail::forks_alone.load(std::memory_order_relaxed);  // relaxed: true only if there is one thread
}

/// A mutex of static storage that forks wait for, so that the child finds whole what it guards: the step before is to
/// lock it, those after are to unlock it.
template <auto& kMutex>
struct ForkWaitsFor {
  static void lock() noexcept {
    if (!forks_alone()) kMutex.lock();
  }
  static void unlock() noexcept {
    if (!forks_alone()) kMutex.unlock();
  }
};

/// How many forks lie between the program's start and this process. Tells what was made before a fork from what is this
/// process's own; never repeats itself in a line of processes, as pids may.
inline std::uint32_t fork_count() noexcept {
  return detail::fork_count.load(std::memory_order_relaxed);  // relaxed: changes while there is one thread
}

}  // namespace shoal
