// Tensors of every kind and type, and calls that do not fit, in a rank's program.
#pragma once

#include "tests/hosts/programs/rank/ranks.h"

namespace shoal::test {

/// Every call with tensors of no dimension, without elements, with strides, views of views, of every type there is.
void odd_tensors(const Group& group);
/// Ranks that do not give the same, in each call: all are told, and all go on.
void odd_ranks(const Group& group);

}  // namespace shoal::test
