#include <shoal/internal/workers/train/backend/communicator_ranks.h>

#include <shoal/workers/train/split.h>
#include <shoal/workers/train/tensor_collectives.h>

namespace shoal {

void CommunicatorRanks::all_reduce_sparse(const at::Tensor& tensor, ReduceOp op) {
  shoal::all_reduce(ranks_, tensor, op);
}

std::unique_ptr<RankGroup> CommunicatorRanks::split(const std::vector<int>& members) {
  auto part = shoal::split(ranks_, members);
  return part ? std::make_unique<CommunicatorRanks>(std::move(*part)) : nullptr;
}

std::unique_ptr<RankGroup> CommunicatorRanks::split(int color, int key) {
  auto part = shoal::split(ranks_, color, key);
  return part ? std::make_unique<CommunicatorRanks>(std::move(*part)) : nullptr;
}

}  // namespace shoal
