// Session: a root process and all that it started, as users see it. They include <shoal/ipc/session.h>: it adds the
// bodies of publish() and lookup(), which need the codec, which needs the heap, which needs this header. What shoal's
// own code does with a session besides is SessionCore, beside this one.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/process_tag.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

class Encoder;
class Heap;
class Listener;
struct Published;

/// This process's view of its session: a root process and all that it started share one memory, one process table and
/// one table of published values. Each process has at most one, which is never destroyed, so that handles with static
/// lifetime can still let go of their memory. Threads: any. When a process of the session dies, any other one that
/// notices it gives back what the dead one had.
class Session {
 public:
  /// The session of this process. Unless another process started this one, the first call creates a session and
  /// reserves SHOAL_HEAP_BYTES of address space for it (1 TiB if the limits of the process allow).
  static Session& current() {
    // A2: pairs with R2, where the instance was made.
    if (Session* session = instance_.load(std::memory_order_acquire)) return *session;
    return create();
  }
  /// Whether this process has a session. Never creates one.
  static bool exists() noexcept { return instance_.load(std::memory_order_acquire) != nullptr; }

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

  Heap& heap() noexcept { return *heap_; }  ///< this process's allocator

  /// This process's tag. The first call in a process, or after a fork, takes a slot of the process table. Throws Error
  /// if all slots are taken.
  ProcessTag self() {
    // relaxed: the word is all there is, and a fork resets it while there is one thread.
    if (std::uint32_t word = self_.load(std::memory_order_relaxed)) return ProcessTag::from_word(word);
    return take_slot();
  }
  bool is_alive(ProcessTag tag);  ///< false for one that is dead, reclaimed or not
  /// The number of processes that the session has room for besides those it has.
  std::uint32_t free_slots();
  /// Gives back at once what the dead processes of the session had: their memory, locks, names and slots. Without
  /// the call, any process that sleeps in one of shoal's waits does it within a second.
  void reclaim_all();

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  // Every Session is a SessionCore.
  friend class SessionCore;
  explicit Session(Heap* heap) noexcept : heap_(heap) {}
  ~Session() = default;
  static Session& create();
  ProcessTag take_slot();
  void publish_message(const std::string& key, std::uint64_t schema, Encoder& message);
  Published find_published(const std::string& key, std::uint64_t schema, Deadline deadline);

  static std::atomic<Session*> instance_;
  std::atomic<std::uint32_t> self_{0};
  Heap* heap_;  // never destroyed
};

}  // namespace shoal
