// Session: a root process and all that it started, with one memory and one process table. Users include
// <shoal/ipc/session.h>: it adds the bodies of publish() and lookup(), which need the codec, which needs the heap,
// which needs this header.
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
class AtFork;
class Encoder;
class Heap;
class Listener;
class LivenessFile;
class OwnFile;
struct ProcessRecord;
struct Published;
struct SessionLayout;

/// This process's view of its session. Each process has at most one, which is never destroyed, so that handles with
/// static lifetime can still let go of their memory. Threads: any. When a process of the session dies, another one that
/// notices it calls reclaim().
class Session {
 public:
  /// The descriptors that a started process has to inherit to join the session.
  struct Descriptors {
    int memory = -1;
    int liveness = -1;
  };

  /// The session of this process. Unless another process started this one, the first call creates a session and
  /// reserves SHOAL_HEAP_BYTES of address space for it (1 TiB if the limits of the process allow).
  static Session& current() {
    // A2: pairs with R2, where the instance was made.
    if (Session* session = instance_.load(std::memory_order_acquire)) return *session;
    return create();
  }
  /// Whether this process has a session. Never creates one.
  static bool exists() noexcept { return instance_.load(std::memory_order_acquire) != nullptr; }
  /// Makes this process part of an existing session and takes the descriptors over. A started process calls it before
  /// it uses anything else of shoal.
  static Session& join(Descriptors descriptors);

  /// Lets processes outside the tree attach under this name as long as the Listener lives (see listener.h).
  [[nodiscard]] static Listener listen(const std::string& name);
  /// Makes this process part of the session that listens under this name, whoever started the process. From then on it
  /// is a process of the session like any other: others reclaim what it had when it dies, and it keeps the memory when
  /// the root leaves. It has to be the process's first use of shoal. Throws
  ///
  /// - std::invalid_argument for a bad name,
  /// - Error if nobody listens, the session belongs to another user, or another version of shoal made it,
  /// - std::logic_error if the process has a session already,
  /// - TimeoutError.
  static Session& attach(const std::string& name, std::chrono::nanoseconds timeout = std::chrono::seconds(5));

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
  Heap& heap() noexcept { return *heap_; }             ///< this process's allocator

  /// This process's tag. The first call in a process, or after a fork, takes a slot of the process table. Throws Error
  /// if all slots are taken.
  ProcessTag self() {
    // relaxed: the word is all there is, and a fork resets it while there is one thread.
    if (std::uint32_t word = self_.load(std::memory_order_relaxed)) return ProcessTag::from_word(word);
    return take_slot();
  }
  /// This process's tag if it has one; takes no slot.
  ProcessTag self_if_known() const noexcept { return ProcessTag::from_word(self_.load(std::memory_order_relaxed)); }

  /// Writes this process's name and rank (-1: none) into the process table.
  void describe_self(const std::string& name, int rank);
  /// Says that this process leaves of its own will, so its death is no failure to processes that wait for it. Call it
  /// last: use nothing of shoal afterwards.
  void leave() noexcept;

  bool is_alive(ProcessTag tag);  ///< false for one that is dead, reclaimed or not
  /// The tag of the process with this pid, alive or dead and not reclaimed yet; an empty tag if there is none.
  ProcessTag find(std::int32_t pid);
  /// The number of slots that no process has.
  std::uint32_t free_slots();

  /// Publishes an encodable value (a queue, say) for other processes to look up: processes that attached begin with
  /// nothing else. Replaces what this process had published under the key. It stays until unpublish(), or until this
  /// process ends. A session has up to 256 keys of 1 to 103 characters. Throws std::invalid_argument if the key is bad
  /// or another process has published it. Threads: any.
  template <class T>
  void publish(const std::string& key, const T& value);
  /// What a living process has published under the key. Waits for it up to `timeout`, then throws NotPublished. Throws
  /// DecodeError if it is not a T. The value stays when its publisher ends.
  template <class T>
  T lookup(const std::string& key, std::chrono::nanoseconds timeout = {});
  /// Takes back what this process has published under the key. Returns false if there is nothing.
  bool unpublish(const std::string& key);
  std::vector<std::string> published_keys();  ///< of all living processes

  /// Gives back all that a dead process had; does nothing if it lives or was reclaimed already. Returns false if
  /// another process reclaims at the moment, or something is left: a cell of a ring that the dead process had no hold
  /// on, a name whose lock somebody keeps. May be repeated, and may be killed half-way.
  bool reclaim(ProcessTag dead);
  /// Calls reclaim() for every dead process in the table.
  void reclaim_all();

  /// For a process made by fork(): gives this process a hold of its own for every hold that the parent had at the fork,
  /// so that copies of handles go on working whatever the parent does. The parent must not give up any hold meanwhile.
  /// Without this call the copies last only as long as the parent keeps the originals.
  void adopt_inherited_holds();
  /// The tag of the process that forked this one; the holds that this process inherited belong to it until
  /// adopt_inherited_holds().
  ProcessTag forked_from() const noexcept { return ProcessTag::from_word(forked_from_); }

 private:
  Session(Descriptors descriptors, std::byte* base);
  static Session& create();
  static Session& install(std::unique_ptr<Session> session);
  static void tell_others(Session& session) noexcept;
  static void after_fork() noexcept;
  /// Makes this process's allocator, which is never destroyed. Defined in the heap's folder, which this class does not
  /// know.
  static Heap* make_heap(std::byte* base);
  ProcessTag take_slot();
  bool try_slot(std::uint32_t slot);
  void publish_message(const std::string& key, std::uint64_t schema, Encoder& message);
  Published find_published(const std::string& key, std::uint64_t schema, Deadline deadline);

  static const AtFork at_fork_;
  static std::atomic<Session*> instance_;
  std::atomic<std::uint32_t> self_{0};
  std::uint32_t forked_from_ = 0;
  std::mutex slot_mutex_;     // held while this process takes a slot
  std::mutex reclaim_mutex_;  // held while reclaiming: a slot's reclaimer is a process, so this keeps its threads apart
  std::byte* base_ = nullptr;
  std::unique_ptr<OwnFile> memory_;
  std::unique_ptr<LivenessFile> liveness_;
  Heap* heap_ = nullptr;
};

}  // namespace shoal
