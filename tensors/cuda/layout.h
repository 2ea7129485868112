// How exported memory and events of devices lie in shared memory. Pictured in docs/cuda.md.
#pragma once

#include <shoal/internal/tensors/driver/device_memory.h>

#include <cstdint>

namespace shoal {

/// An exported storage: what a message has of a tensor on a device. It lies in a block of its own, whose holds say who
/// has the tensor; the exporting process holds it as long as it keeps the storage. Written once, before anyone else
/// sees the block. If it is shared by descriptors, the bytes of each piece (uint64) follow it.
struct DeviceExportLayout {
  static constexpr std::uint32_t kMagic = 0x78766564;  // "devx"
  static constexpr std::uint32_t kVersion = 1;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t producer;    // ProcessTag
  std::uint8_t device_type;  // c10::DeviceType
  std::uint8_t reserved[3];
  std::uint8_t uuid[16];     // of the device
  std::uint64_t base;        // the producer's number of the allocation, never used twice
  std::uint64_t base_bytes;  // of the allocation, or of all pieces
  std::uint64_t offset;      // of the storage in it
  std::uint64_t bytes;       // of the storage; 0: there is no memory at all
  std::uint32_t pieces;      // 0: shared by the handle below
  std::uint32_t reserved_too;
  std::byte handle[64];  // MemoryHandle
};

static_assert(sizeof(DeviceExportLayout) == 136);

/// An event of a process that others wait on, in a block of its own. While anyone else holds it, it is not recorded
/// again.
struct DeviceEventLayout {
  static constexpr std::uint32_t kMagic = 0x65766564;  // "deve"
  static constexpr std::uint32_t kVersion = 1;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t producer;    // ProcessTag
  std::uint8_t device_type;  // c10::DeviceType
  std::uint8_t reserved[3];
  std::uint8_t uuid[16];  // of the device
  std::uint64_t number;   // the producer's, never used twice
  std::byte handle[64];   // EventHandle
};

static_assert(sizeof(DeviceEventLayout) == 104);

/// More pieces than any storage has: 64 Ki of 2 MiB are 128 GiB.
constexpr std::uint32_t kMostPieces = 65'000;

}  // namespace shoal
