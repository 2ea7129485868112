// Tensors and values from rank to rank.
#pragma once

#include "tests/hosts/programs/rank/ranks.h"

namespace shoal::test {

/// Every rank with every other: small and large, by tags, from any, values, what does not fit, what nobody takes.
void messages(const Group& group);

/// On two hosts of two ranks: one has a message under way that another waits for, and is waited for, through a third one, by
/// what the first waits for, between hosts.
void messages_while_others_wait(const Group& group);

/// The last rank leaves; the others hear of it when they wait for a message of it.
void messages_of_one_that_leaves(Group group);

/// Waits for a message of the last rank, which calls `say_ready` and sends none. Throws what that ends with.
void wait_for_the_last(const Group& group, void (*say_ready)());

}  // namespace shoal::test
