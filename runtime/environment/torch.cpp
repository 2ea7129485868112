// torchrun's variables, which shoal run sets as well.
#include <fmt/format.h>
#include <shoal/internal/runtime/environment/launchers.h>

namespace shoal {
namespace {

bool is_loopback(const std::string& address) {
  return address.empty() || address == "localhost" || address.starts_with("127.") || address == "::1";
}

}  // namespace

bool has_torch_variables(const Variables::Lookup& lookup) {
  const Variables variables(lookup, "");
  return variables.has("RANK") || variables.has("WORLD_SIZE");
}

Environment read_torch_variables(const Variables::Lookup& lookup) {
  const bool by_shoal = Variables(lookup, "").has("SHOAL_RUN");
  const Variables variables(lookup, by_shoal ? "shoal run" : "torchrun");
  Environment result;
  result.launcher = by_shoal ? Launcher::shoal : Launcher::torchrun;
  result.world_size = variables.required("WORLD_SIZE", 1, kMostRanks);
  result.rank = variables.required_below("RANK", result.world_size, "WORLD_SIZE");
  result.master_addr = variables.text_or("MASTER_ADDR", "");
  result.master_port = variables.number_or("MASTER_PORT", 0, 65535, 0);
  if (variables.has("LOCAL_RANK") || variables.has("LOCAL_WORLD_SIZE") || !is_loopback(result.master_addr)) {
    // Set by hand for one process a host, LOCAL_WORLD_SIZE is often left out.
    const bool alone = !variables.has("LOCAL_WORLD_SIZE") && variables.text_or("LOCAL_RANK", "") == "0" &&
                       !variables.has("TORCHELASTIC_RUN_ID");
    result.local_world_size = alone ? 1 : variables.required("LOCAL_WORLD_SIZE", 1, kMostRanks);
    result.local_rank = variables.required_below("LOCAL_RANK", result.local_world_size, "LOCAL_WORLD_SIZE");
  } else {
    // RANK and WORLD_SIZE alone, as people set them by hand to try something: all ranks on one host.
    result.local_world_size = result.world_size;
    result.local_rank = result.rank;
  }
  if (result.local_world_size > result.world_size)
    variables.refuse("LOCAL_WORLD_SIZE", fmt::format("it cannot be more than WORLD_SIZE={}", result.world_size));
  if (result.local_rank > result.rank)
    variables.refuse("LOCAL_RANK", fmt::format("it cannot be more than RANK={}", result.rank));
  const bool one_host = result.is_on_one_host();
  result.node_count = variables.number_or("GROUP_WORLD_SIZE", 1, result.world_size, one_host ? 1 : -1);
  result.node_rank = variables.number_or("GROUP_RANK", 0, result.world_size - 1, one_host ? 0 : -1);
  if (result.node_count > 0 && result.node_rank >= result.node_count)
    variables.refuse("GROUP_RANK", fmt::format("it has to be less than GROUP_WORLD_SIZE={}", result.node_count));
  result.run_id = variables.text_or("TORCHELASTIC_RUN_ID", "");
  result.restart_count = variables.number_or("TORCHELASTIC_RESTART_COUNT", 0, kMostRanks, 0);
  result.max_restarts = variables.number_or("TORCHELASTIC_MAX_RESTARTS", 0, kMostRanks, 0);
  return result;
}

}  // namespace shoal
