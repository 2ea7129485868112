// The pictures in docs/cuda.md are what the code says.
#include <fmt/format.h>
#include <shoal/tensors/cuda/layout.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

/// Offset and size by name.
using Fields = std::map<std::string, std::pair<std::size_t, std::size_t>>;

Fields documented(const std::string& heading) {
  std::ifstream file(std::filesystem::path(SHOAL_DOCS) / "cuda.md");
  REQUIRE(file.good());
  Fields fields;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line.substr(3).starts_with(heading);
    if (!inside || !line.starts_with("| ") || line.starts_with("| offset")) continue;
    std::istringstream cells(line);
    std::string bar, name;
    std::size_t offset = 0, bytes = 0;
    cells >> bar >> offset >> bar >> bytes >> bar >> name;
    fields[name] = {offset, bytes};
  }
  return fields;
}

}  // namespace

#define FIELD(type, member)                                   \
  {                                                           \
    #member, { offsetof(type, member), sizeof(type::member) } \
  }

TEST_CASE("device ipc: docs/cuda.md shows the layouts in shared memory as they are, of this version") {
  static_assert(std::is_standard_layout_v<DeviceExportLayout> && std::is_trivially_copyable_v<DeviceExportLayout>);
  static_assert(std::is_standard_layout_v<DeviceEventLayout> && std::is_trivially_copyable_v<DeviceEventLayout>);
  CHECK(documented(fmt::format("DeviceExportLayout (version {})", DeviceExportLayout::kVersion)) ==
        Fields{FIELD(DeviceExportLayout, magic), FIELD(DeviceExportLayout, version),
               FIELD(DeviceExportLayout, producer), FIELD(DeviceExportLayout, device_type),
               FIELD(DeviceExportLayout, uuid), FIELD(DeviceExportLayout, base), FIELD(DeviceExportLayout, base_bytes),
               FIELD(DeviceExportLayout, offset), FIELD(DeviceExportLayout, bytes), FIELD(DeviceExportLayout, pieces),
               FIELD(DeviceExportLayout, handle)});
  CHECK(documented(fmt::format("DeviceEventLayout (version {})", DeviceEventLayout::kVersion)) ==
        Fields{FIELD(DeviceEventLayout, magic), FIELD(DeviceEventLayout, version), FIELD(DeviceEventLayout, producer),
               FIELD(DeviceEventLayout, device_type), FIELD(DeviceEventLayout, uuid), FIELD(DeviceEventLayout, number),
               FIELD(DeviceEventLayout, handle)});
}
