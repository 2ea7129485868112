// The picture of a group in docs/collectives.md is what the code says.
#include <fmt/format.h>
#include <shoal/internal/workers/train/group/group_layout.h>

#include "tests/support/documented_layout.h"

using namespace shoal;
using shoal::test::documented;
using shoal::test::Fields;

TEST_CASE("group layout: docs/collectives.md shows the structures as they are, of this version") {
  CHECK(documented("collectives.md", fmt::format("GroupLayout (version {})", GroupLayout::kVersion)) ==
        Fields{FIELD(GroupLayout, magic), FIELD(GroupLayout, version), FIELD(GroupLayout, world_size),
               FIELD(GroupLayout, first_round), FIELD(GroupLayout, chunk_bytes), FIELD(GroupLayout, ranks),
               FIELD(GroupLayout, staging)});
  CHECK(documented("collectives.md", "RankLayout") ==
        Fields{FIELD(RankLayout, round), FIELD(RankLayout, event), FIELD(RankLayout, tag), FIELD(RankLayout, state),
               FIELD(RankLayout, culprit), FIELD(RankLayout, pid), FIELD(RankLayout, announcements)});
  CHECK(documented("collectives.md", "Announcement") ==
        Fields{FIELD(Announcement, what), FIELD(Announcement, type), FIELD(Announcement, op), FIELD(Announcement, root),
               FIELD(Announcement, bytes), FIELD(Announcement, offset), FIELD(Announcement, buffer),
               FIELD(Announcement, letters), FIELD(Announcement, block), FIELD(Announcement, once)});
}
