// The beginning that all blocks of shared memory about devices have.
#pragma once

#include <c10/core/Device.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/tensors/cuda/layout.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace shoal {

/// Makes a layout at the start of a block, zero but for what it is, who made it and which device it is about.
template <class Layout>
Layout* make_layout(std::byte* block, c10::Device device) {
  auto* layout = new (block) Layout{};
  layout->magic = Layout::kMagic;
  layout->version = Layout::kVersion;
  layout->producer = Session::current().self().word();
  layout->device_type = std::uint8_t(device.type());
  const DeviceUuid uuid = device_memory(device.type()).uuid(device.index());
  std::memcpy(layout->uuid, uuid.bytes.data(), sizeof layout->uuid);
  return layout;
}

}  // namespace shoal
