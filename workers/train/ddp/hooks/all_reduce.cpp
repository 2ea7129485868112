// The mean over all ranks, which is what is done without a hook.
#include <shoal/internal/workers/train/ddp/mean.h>
#include <shoal/workers/train/comm_hooks.h>

namespace shoal {

CommHook all_reduce_hook(const ProcessGroupOfHook& process_group) {
  return [process_group](GradBucket& bucket) { return begin_mean(process_group, bucket); };
}

}  // namespace shoal
