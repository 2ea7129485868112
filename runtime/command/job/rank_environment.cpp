#include <shoal/internal/runtime/command/job/rank_environment.h>

#include <cstdlib>

namespace shoal::command {

std::vector<std::pair<std::string, std::string>> rank_environment(const RunOptions& options, const Round& round,
                                                                  int local_rank, int threads) {
  const std::string rank = std::to_string(round.first_rank + local_rank), world = std::to_string(round.world_size);
  std::vector<std::pair<std::string, std::string>> variables{
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"RANK", rank},
      {"GROUP_RANK", std::to_string(round.node_rank)},
      {"ROLE_RANK", rank},
      {"ROLE_NAME", options.role},
      {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
      {"WORLD_SIZE", world},
      {"GROUP_WORLD_SIZE", std::to_string(round.node_count)},
      {"ROLE_WORLD_SIZE", world},
      {"MASTER_ADDR", round.master_addr},
      {"MASTER_PORT", std::to_string(round.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(round.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts)},
      {"TORCHELASTIC_RUN_ID", options.run_id},
      // Nobody listens at that port yet: a program that wants a store there makes it in its rank 0.
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"SHOAL_ROUND", std::to_string(round.number)}};
  if (threads > 0) variables.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
  if (!std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING")) variables.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  return variables;
}

}  // namespace shoal::command
