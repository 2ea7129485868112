// Groups of some ranks, and Work that is under way.
#pragma once

#include "tests/hosts/programs/rank/ranks.h"

namespace shoal::test {

/// Parts of a group, by lists and by colors: who is in them, and that they work side by side.
void parts_of_a_group(const Group& group);

/// Calls return before the ranks that they need have come. `second` is another group of the same ranks.
void work_under_way(const Group& group, const Group& second);

}  // namespace shoal::test
