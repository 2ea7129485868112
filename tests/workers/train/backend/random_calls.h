// The same random calls on all ranks of a group, compared with what a plain loop gives.
#pragma once

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal::test {

/// Collectives and messages of every kind, type and operation, of 0 to `most` elements, with up to six under way. All ranks
/// draw the same calls from `seed`; each draws for itself where its tensors lie (in the heap or not, between canaries, with
/// strides), in which order it waits and how late it is. Throws where a result, an input or a canary is not what it has to
/// be, with the call's number and what it was.
void random_calls(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::uint64_t seed, int calls,
                  std::int64_t most);

}  // namespace shoal::test
