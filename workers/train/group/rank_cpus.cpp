// How many CPUs a rank has for itself.
#include <shoal/internal/workers/train/group/rank_cpus.h>

#include <shoal/internal/runtime/cpu/cpu_set.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/internal/workers/train/group/communicator_state.h>

namespace shoal {

// relaxed, everywhere here: written before the rank's first R1, and read after an A1 of all.

void say_cpus(RankLayout& own) {
  std::uint32_t hash = 2166136261u;
  for (const char each : CpuSet::of_this_thread().text()) hash = (hash ^ std::uint32_t(each)) * 16777619u;  // FNV-1a
  own.cpus.store(std::uint32_t(usable_cpus()), std::memory_order_relaxed);
  own.cpu_set.store(hash, std::memory_order_relaxed);
}

double cpu_share(GroupLayout& layout, int rank) {
  const RankLayout& own = layout.rank(rank);
  int sharing = 0;
  for (int other = 0; other < int(layout.world_size); ++other)
    sharing +=
        layout.rank(other).cpu_set.load(std::memory_order_relaxed) == own.cpu_set.load(std::memory_order_relaxed);
  return double(own.cpus.load(std::memory_order_relaxed)) / sharing;
}

double Communicator::cpu_share() const { return shoal::cpu_share(state_->layout, state_->me); }

}  // namespace shoal
