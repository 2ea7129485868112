// The host double's memory: allocations, storages in them, and how other processes open them.
#pragma once

#include <c10/core/Allocator.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "tests/support/host_double/host_double.h"

namespace shoal::host_double {

/// A caching allocator: storages lie one behind the other in allocations of some MiB, which are only freed by
/// empty_cache(). What a freed storage had is overwritten, in the order of its stream, and given to the next one on that
/// stream at once.
class Memory final : public DeviceMemory {
 public:
  static Memory& current();

  std::byte* allocate(std::size_t bytes, int device);
  void free(std::byte* storage) noexcept;
  /// The storage is used on this stream, too: what it had is overwritten behind that.
  void record_stream(const void* storage, std::int64_t stream);
  bool is_registered(const void* host_memory);
  /// Refuses to copy memory of the host that begins in a registration and ends behind it.
  void check_host(const void* host_memory, std::size_t bytes);
  void empty_cache();
  std::size_t bytes_in_storages();
  std::size_t bytes_of_allocations();
  void set_visible(std::vector<int> devices);
  void use_expandable_segments(bool on) { expandable_ = on; }
  void use_fabric_handles(bool on) { fabric_ = on; }
  void limit_memory(std::size_t bytes) { most_bytes_ = bytes; }
  void use_suballocations(bool on) { suballocations_ = on; }

  const char* name() const override { return "double"; }
  int device_count() override;
  DeviceUuid uuid(int device) override;
  std::size_t free_bytes(int device) override;
  Base base_of(const void* address, int device) override;
  MemoryHandle handle_of(const Base& base, int device) override;
  Fd descriptor_of(const Base& base, int device) override;
  std::byte* open(const MemoryHandle& handle, std::size_t bytes, int device) override;
  void close(std::byte* opened, int device) noexcept override;
  std::byte* map(std::span<const Piece> pieces, int device) override;
  void unmap(std::byte* mapped, std::size_t bytes, int device) noexcept override;
  void register_host(std::byte* start, std::size_t bytes, int device) override;
  void unregister_host(std::byte* start, int device) noexcept override;
  bool has_words(int device) override;
  std::size_t most_waiting_streams(int device) override;
  void write_word(void* stream, std::uint64_t* word, std::uint64_t value, int device) override;
  void wait_word(void* stream, const std::uint64_t* word, std::uint64_t value, int device) override;
  std::uint64_t stream_number(void* stream, int device) override;
  bool is_captured(void* stream, int device) override;
  CaptureMode exchange_capture_mode(CaptureMode mode) noexcept override;
  bool is_initialized() noexcept override;

  struct Counts {
    int openings = 0, open = 0, registrations = 0;
    std::size_t registered_bytes = 0;
    int events = 0;
  };
  Counts counts();

 private:
  /// In the first page of an allocation: who has it open.
  struct Control {
    std::atomic<pid_t> openers[512];
  };
  static constexpr std::size_t kPage = 4096, kPiece = 2u << 20, kReserved = 256u << 20, kAlignment = 512;

  struct Allocation {
    int device;
    std::byte* start;   // of the data
    std::size_t bytes;  // usable now
    std::size_t used = 0;
    int storages = 0;
    Control* control = nullptr;  // null: made of pieces
    std::vector<Fd> files{};     // one, or one a piece
    struct Block {
      std::size_t bytes;
      std::int64_t stream;
      std::set<std::int64_t> other_streams{};
    };
    std::map<std::byte*, Block> live{};
    std::map<std::pair<std::int64_t, std::size_t>, std::vector<std::byte*>> unused{};  // by stream and size
  };
  std::size_t bytes_in_use() const;  // with the lock held
  std::byte* take(std::size_t bytes, int device, std::int64_t stream);
  Allocation& make(std::size_t bytes, int device);
  void grow(Allocation& allocation, std::size_t bytes);
  void release(Allocation& allocation);
  Allocation& find(const void* address);
  int device_of(const void* address);

  // The allocators', one for each device, as libtorch has them; the driver knows nothing of them.
  std::array<std::recursive_mutex, kPhysicalDevices> allocating_;
  std::mutex mutex_;
  std::list<Allocation> allocations_;
  std::atomic<std::size_t> most_bytes_{~std::size_t{0}};
  std::vector<int> visible_;
  bool expandable_ = false, fabric_ = false, suballocations_ = false;
  struct Opened {
    std::byte* start;
    std::size_t bytes;
    int times;
  };
  std::map<ino_t, Opened> opened_;
  std::map<std::byte*, std::size_t> registered_;
  int openings_ = 0, registrations_ = 0, mapped_ = 0;
};

}  // namespace shoal::host_double
