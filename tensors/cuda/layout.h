// How exported memory of devices, and words of their streams, lie in shared memory. Pictured in docs/device-memory.md.
#pragma once

#include <shoal/internal/tensors/driver/device_memory.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// An exported storage: what a message has of a tensor on a device. It lies in a block of its own, whose holds say who
/// has the tensor; the exporting process holds it as long as it keeps the storage. Written once, before anyone else
/// sees the block, but for `wanted_back`. If it is shared by pieces, the bytes of each (uint64) follow it, and then, if
/// they are shared by fabric handles, these (64 bytes each).
struct DeviceExportLayout {
  static constexpr std::uint32_t kMagic = 0x78766564;  // "devx"
  static constexpr std::uint32_t kVersion = 2;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t producer;    // ProcessTag
  std::uint8_t device_type;  // c10::DeviceType
  std::uint8_t by;           // DeviceMemory::By
  std::uint8_t reserved[2];
  std::uint8_t uuid[16];      // of the device
  std::uint64_t base;         // the producer's number of the allocation, never used twice
  std::uint64_t base_bytes;   // of the allocation, or of all pieces
  std::uint64_t offset;       // of the storage in it
  std::uint64_t bytes;        // of the storage; 0: there is no memory at all
  std::uint32_t pieces;       // 0: shared by the handle below
  std::uint32_t wanted_back;  // 1: the producer waits for its memory. Whoever keeps it in stock gives it up
  std::byte handle[64];       // MemoryHandle

  bool is_by_fabric() const { return by == std::uint8_t(DeviceMemory::By::kFabric); }
  std::size_t handles_at() const { return sizeof *this + pieces * sizeof(std::uint64_t); }
  std::size_t block_bytes() const { return handles_at() + (is_by_fabric() ? pieces * sizeof(MemoryHandle) : 0); }
};

static_assert(sizeof(DeviceExportLayout) == 136);

/// Words by which streams of a process tell others how far they have come, in a block of their own of whole pages, which
/// everyone who uses it registers with the driver. Each word only grows. Who writes what: docs/device-memory.md.
struct DeviceWordsLayout {
  static constexpr std::uint32_t kMagic = 0x77766564;  // "devw"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint32_t kWords = 252;
  /// No stream ever writes so much: a greater value in a message is damage.
  static constexpr std::uint64_t kMostValue = 1ull << 62;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t producer;    // ProcessTag
  std::uint8_t device_type;  // c10::DeviceType
  std::uint8_t reserved[3];
  std::uint8_t uuid[16];  // of the device that the page was made for; those of its process all use it
  std::uint64_t reserved_too[4];
  std::atomic<std::uint64_t> queued[kWords];   // the greatest value whose write was queued, or is about to be
  std::atomic<std::uint64_t> reached[kWords];  // what a stream has written
};

static_assert(sizeof(DeviceWordsLayout) == 4096);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// More pieces than any storage has: 64 Ki of 2 MiB are 128 GiB.
constexpr std::uint32_t kMostPieces = 65'000;

}  // namespace shoal
