// The picture of a group in docs/collectives.md is what the code says.
#include <fmt/format.h>
#include <shoal/workers/train/group_layout.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

/// Offset and size by name.
using Fields = std::map<std::string, std::pair<std::size_t, std::size_t>>;

Fields documented(const std::string& heading) {
  std::ifstream file(std::filesystem::path(SHOAL_DOCS) / "collectives.md");
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

TEST_CASE("group layout: docs/collectives.md shows the structures as they are, of this version") {
  CHECK(documented(fmt::format("GroupLayout (version {})", GroupLayout::kVersion)) ==
        Fields{FIELD(GroupLayout, magic), FIELD(GroupLayout, version), FIELD(GroupLayout, world_size),
               FIELD(GroupLayout, first_round), FIELD(GroupLayout, chunk_bytes), FIELD(GroupLayout, ranks),
               FIELD(GroupLayout, staging)});
  CHECK(documented("RankLayout") == Fields{FIELD(RankLayout, round), FIELD(RankLayout, event), FIELD(RankLayout, tag),
                                           FIELD(RankLayout, state), FIELD(RankLayout, culprit), FIELD(RankLayout, pid),
                                           FIELD(RankLayout, announcements)});
  CHECK(documented("Announcement") == Fields{FIELD(Announcement, what), FIELD(Announcement, type),
                                             FIELD(Announcement, op), FIELD(Announcement, root),
                                             FIELD(Announcement, bytes), FIELD(Announcement, offset),
                                             FIELD(Announcement, buffer), FIELD(Announcement, letters)});
}
