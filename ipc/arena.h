// Values made of Boost.Interprocess containers, in shared memory.
#pragma once

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/containers/arena_core.h>
#include <shoal/internal/ipc/sync/shared_type.h>
#include <shoal/ipc/codec.h>

#include <boost/interprocess/allocators/allocator.hpp>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/indexes/null_index.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/null_mutex.hpp>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace shoal {

/// No lock for Boost's memory of an arena. It is a member of the memory's header, which Boost 1.74 refuses if nothing in
/// it is aligned as a pointer.
struct alignas(void*) ArenaMutex : boost::interprocess::null_mutex {};
/// No lock either, but what Boost calls wherever memory is taken or given back: only a change() may do so.
struct ArenaMemoryGuard {
  /// Throws std::logic_error if this thread is not changing the arena that the guard lies in.
  void lock() const { ArenaWriting::check(this); }
  void unlock() const noexcept {}  ///< nothing
};
/// The two kinds of mutex that Boost's algorithm of memory asks for: none is a lock.
struct ArenaMutexFamily {
  using recursive_mutex_type = ArenaMutex;  ///< what the memory's header has
  using mutex_type = ArenaMemoryGuard;      ///< what is locked to allocate
};

/// The memory of one version of an arena, as Boost sees it: without names, and without locks, since the arena has one.
using ArenaMemory =
    boost::interprocess::basic_managed_external_buffer<char, boost::interprocess::rbtree_best_fit<ArenaMutexFamily>,
                                                       boost::interprocess::null_index>;

/// Allocates in an arena, for containers that take an allocator with pointers of its own kind (offset_ptr): those of
/// Boost.Interprocess and Boost.Container, boost::unordered_map, and libstdc++'s std::vector.
template <class T>
using ArenaAllocator = boost::interprocess::allocator<T, ArenaMemory::segment_manager>;

namespace detail {

/// A container whose elements lie in an arena.
template <class C>
concept LivesInArena = requires(const C& container) {
  requires std::is_same_v<std::remove_cvref_t<decltype(container.get_allocator())>,
                          ArenaAllocator<typename C::value_type>>;
};

}  // namespace detail

/// A T that any threads of any processes look at in place, and change as a whole. T and all that it contains lie in
/// shared memory: they are made of plain members and of containers with an ArenaAllocator, without a pointer, a
/// reference or a virtual function. T is constructed with an ArenaAllocator, if it takes one. A handle: copies refer to
/// the same value, also in other processes, and it crosses in messages.
///
/// - A change is made to a copy of the memory, which takes the place of the old one by one store: whoever looks sees
///   the value before or after it, whole, also if the one who changes it is killed.
/// - Who looks waits for nobody that makes a change, and keeps a version for as long as it likes. Versions that nobody
///   looks at are freed, without running destructors.
/// - A container's copy has its allocator, so a copy of what read() shows would be made inside the version: that throws
///   std::logic_error. Copy the elements into a container of another kind (a std::string), or copy inside change().
/// - The memory grows as the value does. A change of a small part costs a copy of all: 0.2 ms for 1 MiB.
template <class T>
class Arena {
  static_assert(!std::is_polymorphic_v<T>, "a T with virtual functions means nothing in another process");
  static_assert(!std::is_pointer_v<T>, "a pointer means nothing in another process");
  static_assert(alignof(T) <= 64, "blocks of shared memory are aligned to 64 bytes, and so are copies of a T");

 public:
  using Allocator = ArenaAllocator<std::byte>;  ///< what T is constructed with

  /// The value at one moment, which stays as it is while this object lives. Move-only.
  class Version {
   public:
    const T& operator*() const { return *value_; }  ///< the value
    const T* operator->() const { return value_; }  ///< the value
    /// How many versions were before this one.
    std::uint64_t number() const { return ArenaVersionLayout::of(hold_).number; }
    std::size_t bytes() const { return ArenaVersionLayout::of(hold_).bytes; }  ///< of its memory, used or not

   private:
    friend class Arena;
    explicit Version(Hold hold) : hold_(std::move(hold)), value_(value_in(hold_)) {}
    Hold hold_;
    const T* value_;
  };

  /// A T in a memory of `bytes` at first. Throws OutOfSharedMemory.
  explicit Arena(std::size_t bytes = 4096) : core_(ArenaCore::create(schema())) {
    Hold first;
    for (bytes = bytes < 1024 ? 1024 : bytes; !first; bytes *= 2) first = construct(bytes);
    ArenaCore::Writer(core_).commit(std::move(first));
  }

  /// The value as it is now.
  Version read() const { return Version(core_.current()); }

  /// Calls change(value) on a copy, which then becomes the value, and returns what that returns. One thread of all
  /// processes does so at a time. If `change` throws, nothing happens. It may be called more than once, on a new copy
  /// with more memory each time, until the value fits: so it does nothing else. It must not use this arena (that throws
  /// std::logic_error). Throws OutOfSharedMemory.
  template <class Change>
  auto change(Change&& change) {
    ArenaCore::Writer writer(core_);
    for (std::size_t more = 0;;) {
      Hold next = writer.copy(more);
      if (more != 0) memory_of(next, ArenaVersionLayout::of(next).bytes - more).grow(more);
      const ArenaWriting writing(next);
      try {
        if constexpr (std::is_void_v<std::invoke_result_t<Change&, T&>>) {
          change(*value_in(next));
          SHOAL_KILL_POINT("arena.changed");
          return writer.commit(std::move(next));
        } else {
          static_assert(!detail::LivesInArena<std::remove_cvref_t<std::invoke_result_t<Change&, T&>>>,
                        "shoal: change() cannot return a container with an ArenaAllocator, which would outlive the "
                        "change: return one of another kind (a std::string)");
          auto result = change(*value_in(next));
          SHOAL_KILL_POINT("arena.changed");
          writer.commit(std::move(next));
          return result;
        }
      } catch (const boost::interprocess::bad_alloc&) {
        more = more == 0 ? ArenaVersionLayout::of(next).bytes : 2 * more;
      }
    }
  }

 private:
  friend struct Codec<Arena>;
  explicit Arena(ArenaCore core) : core_(std::move(core)) {}
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Arena", shared_type::hash<T>()); }

  static T* value_in(const Hold& version) {
    ArenaVersionLayout& layout = ArenaVersionLayout::of(version);
    return reinterpret_cast<T*>(layout.memory() + layout.object);
  }
  static ArenaMemory memory_of(const Hold& version, std::size_t bytes) {
    return ArenaMemory(boost::interprocess::open_only, ArenaVersionLayout::of(version).memory(), bytes);
  }
  /// Nothing if the memory is too small.
  Hold construct(std::size_t bytes) const {
    Hold version = core_.make(bytes);
    ArenaVersionLayout& layout = ArenaVersionLayout::of(version);
    const ArenaWriting writing(version);
    try {
      ArenaMemory memory(boost::interprocess::create_only, layout.memory(), bytes);
      auto* place = static_cast<std::byte*>(memory.allocate_aligned(sizeof(T), alignof(T)));
      layout.object = std::uint64_t(place - layout.memory());
      if constexpr (std::is_constructible_v<T, Allocator>)
        new (place) T(Allocator(memory.get_segment_manager()));
      else
        new (place) T();
    } catch (const boost::interprocess::bad_alloc&) {
      return {};
    }
    return version;
  }

  ArenaCore core_;
};

template <class T>
struct Codec<Arena<T>> {
  static constexpr std::uint64_t schema() { return Arena<T>::schema(); }
  static void encode(Encoder& encoder, const Arena<T>& arena) { arena.core_.container().encode(encoder); }
  static Arena<T> decode(Decoder& decoder) {
    return Arena<T>(ArenaCore(Container::decode(decoder, ContainerKind::kArena, schema())));
  }
};

}  // namespace shoal
