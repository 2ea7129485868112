// A thread that does the work of pools while nobody waits for their results.
#pragma once

#include <memory>

namespace shoal::detail {

class PoolCore;

/// Calls core->keep() a hundred times a second until that is false or the pool is gone. One thread for all pools of
/// this process, started at the first call.
void keep_for(const std::shared_ptr<PoolCore>& core);

}  // namespace shoal::detail
