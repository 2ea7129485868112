// The picture of a block in docs/hogwild.md is what the code says.
#include <shoal/internal/workers/train/hogwild/hogwild_layout.h>

#include <fmt/format.h>

#include "tests/support/documented_layout.h"

using namespace shoal;
using shoal::test::documented;
using shoal::test::Fields;

namespace hogwild_layout_test {

TEST_CASE("hogwild layout: docs/hogwild.md shows the structures as they are, of this version") {
  using hogwild::GroupRecord, hogwild::HogwildLayout, hogwild::ParticipantRecord;
  CHECK(documented("hogwild.md", fmt::format("HogwildLayout (version {})", HogwildLayout::kVersion)) ==
        Fields{FIELD(HogwildLayout, magic),
               FIELD(HogwildLayout, version),
               FIELD(HogwildLayout, rule),
               FIELD(HogwildLayout, locking),
               FIELD(HogwildLayout, group_count),
               FIELD(HogwildLayout, parameter_count),
               FIELD(HogwildLayout, stripe_count),
               FIELD(HogwildLayout, stripe_bytes),
               FIELD(HogwildLayout, staleness_bound),
               FIELD(HogwildLayout, timeout),
               FIELD(HogwildLayout, clip_grad_value),
               FIELD(HogwildLayout, clip_grad_norm),
               FIELD(HogwildLayout, clip_grad_norm_type),
               FIELD(HogwildLayout, counts),
               FIELD(HogwildLayout, participants),
               FIELD(HogwildLayout, stripes),
               FIELD(HogwildLayout, begun),
               FIELD(HogwildLayout, finished),
               FIELD(HogwildLayout, clock_changed),
               FIELD(HogwildLayout, participants_used)});
  CHECK(documented("hogwild.md", "GroupRecord") == Fields{FIELD(GroupRecord, lr), FIELD(GroupRecord, numbers)});
  CHECK(documented("hogwild.md", "ParticipantRecord") ==
        Fields{FIELD(ParticipantRecord, tag), FIELD(ParticipantRecord, pid), FIELD(ParticipantRecord, clock)});
}

}  // namespace hogwild_layout_test
