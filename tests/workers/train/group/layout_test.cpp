// The picture of a group in docs/collectives.md is what the code says.
#include <fmt/format.h>
#include <shoal/internal/workers/train/group/group_layout.h>

#include "tests/support/documented_layout.h"

using namespace shoal;
using shoal::test::documented;
using shoal::test::Fields;

namespace layout_test {

TEST_CASE("group layout: docs/collectives.md shows the structures as they are, of this version") {
  CHECK(documented("collectives.md", fmt::format("GroupLayout (version {})", GroupLayout::kVersion)) ==
        Fields{FIELD(GroupLayout, magic), FIELD(GroupLayout, version), FIELD(GroupLayout, world_size),
               FIELD(GroupLayout, first_round), FIELD(GroupLayout, chunk_bytes), FIELD(GroupLayout, ranks),
               FIELD(GroupLayout, staging), FIELD(GroupLayout, flights)});
  CHECK(documented("collectives.md", "RankLayout") ==
        Fields{FIELD(RankLayout, round), FIELD(RankLayout, event), FIELD(RankLayout, tag), FIELD(RankLayout, state),
               FIELD(RankLayout, culprit), FIELD(RankLayout, pid), FIELD(RankLayout, cpus), FIELD(RankLayout, cpu_set),
               FIELD(RankLayout, announcements)});
  CHECK(documented("collectives.md", "FlightLog") ==
        Fields{FIELD(FlightLog, calls), FIELD(FlightLog, tag), FIELD(FlightLog, pid), FIELD(FlightLog, thread),
               FIELD(FlightLog, left), FIELD(FlightLog, told), FIELD(FlightLog, number), FIELD(FlightLog, records)});
  CHECK(documented("collectives.md", "FlightRecord") == Fields{FIELD(FlightRecord, call), FIELD(FlightRecord, start),
                                                               FIELD(FlightRecord, end), FIELD(FlightRecord, bytes),
                                                               FIELD(FlightRecord, name), FIELD(FlightRecord, type)});
  CHECK(documented("collectives.md", "Announcement") ==
        Fields{FIELD(Announcement, what), FIELD(Announcement, type), FIELD(Announcement, op), FIELD(Announcement, root),
               FIELD(Announcement, bytes), FIELD(Announcement, offset), FIELD(Announcement, buffer),
               FIELD(Announcement, letters), FIELD(Announcement, block), FIELD(Announcement, once),
               FIELD(Announcement, pass)});
}

}  // namespace layout_test
