// The pictures in docs/device-memory.md are what the code says.
#include <shoal/internal/tensors/cuda/layout.h>

#include <fmt/format.h>

#include <type_traits>

#include "tests/support/documented_layout.h"

using namespace shoal;
using shoal::test::documented;
using shoal::test::Fields;

TEST_CASE("device ipc: docs/device-memory.md shows the layouts in shared memory as they are, of this version") {
  static_assert(std::is_standard_layout_v<DeviceExportLayout> && std::is_trivially_copyable_v<DeviceExportLayout>);
  static_assert(std::is_standard_layout_v<DeviceWordsLayout>);
  CHECK(documented("device-memory.md", fmt::format("DeviceExportLayout (version {})", DeviceExportLayout::kVersion)) ==
        Fields{FIELD(DeviceExportLayout, magic), FIELD(DeviceExportLayout, version),
               FIELD(DeviceExportLayout, producer), FIELD(DeviceExportLayout, device_type),
               FIELD(DeviceExportLayout, by), FIELD(DeviceExportLayout, uuid), FIELD(DeviceExportLayout, base),
               FIELD(DeviceExportLayout, base_bytes), FIELD(DeviceExportLayout, offset),
               FIELD(DeviceExportLayout, bytes), FIELD(DeviceExportLayout, pieces),
               FIELD(DeviceExportLayout, wanted_back), FIELD(DeviceExportLayout, handle)});
  CHECK(documented("device-memory.md", fmt::format("DeviceWordsLayout (version {})", DeviceWordsLayout::kVersion)) ==
        Fields{FIELD(DeviceWordsLayout, magic), FIELD(DeviceWordsLayout, version), FIELD(DeviceWordsLayout, producer),
               FIELD(DeviceWordsLayout, device_type), FIELD(DeviceWordsLayout, uuid), FIELD(DeviceWordsLayout, queued),
               FIELD(DeviceWordsLayout, reached)});
}
