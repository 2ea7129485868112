// Slurm's variables, and its notations of hosts and counts.
#include <fmt/format.h>
#include <shoal/internal/runtime/environment/launchers.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <sstream>

namespace shoal {
namespace {

/// Where a rendezvous listens if the user says nothing: from the job's number, so that jobs on one host differ.
constexpr int kFirstPort = 15000, kPorts = 10000;

std::optional<std::uint64_t> whole(const std::string& text) {
  std::uint64_t number = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stopped != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

bool has_slurm_variables(const Variables::Lookup& lookup) {
  const Variables variables(lookup, "");
  // The batch script has SLURM_PROCID and SLURM_NTASKS too. What makes a step is its number; those from here on are
  // Slurm's names for what is none (the script, an interactive shell).
  constexpr std::uint64_t kNoSteps = 0xfffffff0;
  const auto step = whole(variables.text_or("SLURM_STEP_ID", variables.text_or("SLURM_STEPID", "none")));
  return variables.has("SLURM_PROCID") && variables.has("SLURM_STEP_NODELIST") && step && *step < kNoSteps;
}

Environment read_slurm_variables(const Variables::Lookup& lookup) {
  const Variables variables(lookup, "Slurm's srun");
  Environment result;
  result.launcher = Launcher::slurm;
  const char* size_name = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  result.world_size = variables.required(size_name, 1, kMostRanks);
  result.rank = variables.required_below("SLURM_PROCID", result.world_size, size_name);
  const char* count_name = variables.has("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  result.node_count = variables.required(count_name, 1, result.world_size);
  result.node_rank = variables.required_below("SLURM_NODEID", result.node_count, count_name);
  const char* tasks_name =
      variables.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const std::vector<int> tasks = counts_of_hosts(variables.text_or(tasks_name, ""));
  int sum = 0;
  for (int count : tasks) sum += count;
  if (int(tasks.size()) != result.node_count || sum != result.world_size)
    variables.refuse(tasks_name, fmt::format("it has to tell of {}={} hosts and {}={} tasks", count_name,
                                             result.node_count, size_name, result.world_size));
  result.local_world_size = tasks[std::size_t(result.node_rank)];
  result.local_rank = variables.required_below("SLURM_LOCALID", result.local_world_size, tasks_name);
  const std::string job = variables.text_or("SLURM_JOB_ID", variables.text_or("SLURM_JOBID", "0"));
  result.run_id = fmt::format("{}.{}", job, variables.text_or("SLURM_STEP_ID", variables.text_or("SLURM_STEPID", "")));
  result.restart_count = variables.number_or("SLURM_RESTART_COUNT", 0, kMostRanks, 0);
  result.master_addr = variables.text_or("MASTER_ADDR", first_host(*variables.text("SLURM_STEP_NODELIST")));
  if (result.master_addr.empty())
    variables.refuse("SLURM_STEP_NODELIST", "it is no list of hosts that could be read; or set MASTER_ADDR");
  result.master_port = variables.number_or("MASTER_PORT", 0, 65535, kFirstPort + int(whole(job).value_or(0) % kPorts));
  return result;
}

std::string first_host(const std::string& list) {
  const std::size_t end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',') return host;
  // NAME[FIRST-LAST,...]SUFFIX
  const std::size_t close = list.find(']', end);
  if (close == std::string::npos) return "";
  const std::string range = list.substr(end + 1, close - end - 1);
  const std::string first = range.substr(0, range.find_first_of("-,"));
  if (first.empty() || !std::ranges::all_of(first, [](char c) { return c >= '0' && c <= '9'; })) return "";
  const std::size_t suffix_end = list.find_first_of(",[", close + 1);
  if (suffix_end != std::string::npos && list[suffix_end] == '[') return "";  // two dimensions: rack[1-2]node[1-9]
  return host + first + list.substr(close + 1, suffix_end == std::string::npos ? suffix_end : suffix_end - close - 1);
}

std::vector<int> counts_of_hosts(const std::string& list) {
  std::vector<int> counts;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    // COUNT or COUNT(xTIMES)
    const std::size_t open = item.find("(x");
    std::uint64_t times = 1;
    if (open != std::string::npos) {
      if (!item.ends_with(')')) return {};
      times = whole(item.substr(open + 2, item.size() - open - 3)).value_or(0);
      item.resize(open);
    }
    const auto count = whole(item);
    if (!count || *count > std::uint64_t(kMostRanks) || times == 0 || times > std::uint64_t(kMostRanks)) return {};
    counts.insert(counts.end(), times, int(*count));
  }
  return counts;
}

}  // namespace shoal
