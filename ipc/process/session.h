// A root process and all that it started: one memory, one process table. Users include <shoal/ipc/session.h>, which has
// the bodies of publish() and lookup() besides: they need the codec, which needs the heap, which needs this.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/process_tag.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace shoal {

struct ActivityRecord;
class Encoder;
class Heap;
class Listener;
class LivenessFile;
class OwnFile;
struct ProcessRecord;
struct Published;
struct SessionLayout;

/// This process's view of its session. There is one a process; it is never destroyed, so that
/// handles with static lifetime can still let go of their memory. Threads: any. When another process
/// of the session dies, whoever notices calls reclaim(); when this one dies, the others do.
class Session {
 public:
  /// What a started process has to inherit to be a part of the session.
  struct Descriptors {
    int memory = -1;
    int liveness = -1;
  };

  /// The session of this process. The first call in a process that was not started by another one
  /// creates it: SHOAL_HEAP_BYTES of address space (1 TiB where the limits of the process allow).
  static Session& current() {
    // A2: pairs with R2, where the instance was made.
    if (Session* session = instance_.load(std::memory_order_acquire)) return *session;
    return create();
  }
  /// Whether there is one already; never creates it.
  static bool exists() noexcept { return instance_.load(std::memory_order_acquire) != nullptr; }
  /// Makes this process part of an existing session. Takes the descriptors over. Called by a started
  /// process before anything else of shoal.
  static Session& join(Descriptors descriptors);

  /// Lets processes outside the tree attach under this name, for as long as the Listener lives (see listener.h).
  [[nodiscard]] static Listener listen(const std::string& name);
  /// Makes this process part of the session that listens under this name, whoever started it: a process like any other,
  /// which others reclaim when it dies, and which keeps the memory when the root leaves. The first use of shoal in its
  /// process. Throws std::invalid_argument for a bad name, Error where nobody listens, the session belongs to another
  /// user or was made by another version of shoal; std::logic_error in a process that has a session already;
  /// TimeoutError.
  static Session& attach(const std::string& name, std::chrono::nanoseconds timeout = std::chrono::seconds(5));

  /// Throws Error where one of the numbers is another file of this program's by now, or closed: with them, a process
  /// would be started into whatever that is.
  Descriptors descriptors() const;
  /// The same without an exception and without memory: -1 for what is not open any more.
  Descriptors descriptors_if_open() const noexcept;
  /// The heap's file, as this process opened it.
  const OwnFile& memory_file() const noexcept { return *memory_; }

  std::byte* base() const noexcept { return base_; }  ///< where this process has mapped the session's memory
  SessionLayout& layout() const noexcept { return *reinterpret_cast<SessionLayout*>(base_); }  ///< its first page
  ProcessRecord& record(std::uint32_t slot) const;                                             ///< of the process table
  ActivityRecord& activity(std::uint32_t slot) const;  ///< what the process of the slot does
  Heap& heap() noexcept { return *heap_; }             ///< this process's allocator

  /// This process's tag. The first call (in a process, and again after a fork) takes a slot of the
  /// process table. Throws Error where all slots are taken.
  ProcessTag self() {
    // relaxed: the word is all there is, and a fork resets it while there is one thread.
    if (std::uint32_t word = self_.load(std::memory_order_relaxed)) return ProcessTag::from_word(word);
    return take_slot();
  }
  /// The same, where it has one: takes none.
  ProcessTag self_if_known() const noexcept { return ProcessTag::from_word(self_.load(std::memory_order_relaxed)); }
  /// Grows by one in each forked child: tells what was made before the fork from what is one's own.
  std::uint32_t fork_count() const noexcept { return fork_count_.load(std::memory_order_relaxed); }

  /// Notes in the process table what people call this process, and which rank it is (-1: none).
  void describe_self(const std::string& name, int rank);
  /// Says that this process leaves of its own will: its death is then no failure to those who wait
  /// for it. Called last, with nothing of shoal used afterwards.
  void leave() noexcept;

  bool is_alive(ProcessTag tag);  ///< false for one that is dead, reclaimed or not
  /// The tag of the living or dead but not yet reclaimed process of this pid, or nobody.
  ProcessTag find(std::int32_t pid);
  /// Slots that no process has.
  std::uint32_t free_slots();

  /// Publishes an encodable value (a queue, say) for other processes to look up: those that attached have nothing else
  /// to begin with. In place of what this process had under the key; up to 256 keys of 1 to 103 characters in a
  /// session. It stays until unpublish(), or until this process ends. Throws std::invalid_argument for a bad key or one
  /// that another process has published. Threads: any.
  template <class T>
  void publish(const std::string& key, const T& value);
  /// What a living process has published under the key; waits for it up to `timeout`, then throws NotPublished.
  /// DecodeError where it is not a T. What was looked up stays when its publisher ends.
  template <class T>
  T lookup(const std::string& key, std::chrono::nanoseconds timeout = {});
  /// Takes back what this process has published; false where there is nothing.
  bool unpublish(const std::string& key);
  std::vector<std::string> published_keys();  ///< of all living processes

  /// Gives back all that a dead process had. Does nothing where it lives or is done already; false where
  /// another process is at it, or some of it is left: a cell of a ring that it had no hold on, a name
  /// under a lock that somebody keeps. May be repeated, and be killed half-way.
  bool reclaim(ProcessTag dead);
  /// reclaim() for every dead process in the table.
  void reclaim_all();

  /// In a process made by fork(): makes every hold that the parent had at the fork this process's
  /// too, so that copies of handles go on working whatever the parent does. The parent must not give
  /// anything up meanwhile. Without it the copies last as long as the parent holds the originals.
  void adopt_inherited_holds();
  /// The slot that a forked process's inherited holds belong to until it adopts them.
  ProcessTag forked_from() const noexcept { return ProcessTag::from_word(forked_from_); }

 private:
  Session(Descriptors descriptors, std::byte* base);
  static Session& create();
  static Session& install(std::unique_ptr<Session> session);
  static void after_fork() noexcept;
  /// Defined in the heap's folder, which this class does not know: this process's allocator, never destroyed.
  static Heap* make_heap(std::byte* base);
  ProcessTag take_slot();
  bool try_slot(std::uint32_t slot);
  void publish_message(const std::string& key, std::uint64_t schema, Encoder& message);
  Published find_published(const std::string& key, std::uint64_t schema, Deadline deadline);

  static std::atomic<Session*> instance_;
  std::atomic<std::uint32_t> self_{0};
  std::atomic<std::uint32_t> fork_count_{0};
  std::uint32_t forked_from_ = 0;
  std::mutex slot_mutex_;     // taking a slot
  std::mutex reclaim_mutex_;  // reclaiming: the slot's reclaimer is a process, so threads exclude each other here
  std::byte* base_ = nullptr;
  std::unique_ptr<OwnFile> memory_;
  std::unique_ptr<LivenessFile> liveness_;
  Heap* heap_ = nullptr;
};

}  // namespace shoal
