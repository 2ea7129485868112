#include <shoal/internal/runtime/command/job/run_settings.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/command/job/many_hosts.h>

#include <stdexcept>

namespace shoal {

using command::NodeCount;
using command::RankCount;
using command::SignalName;
using command::StreamText;

RankCount OptionFormat<RankCount>::from_text(std::string_view text) {
  const std::string written(text);
  // Whether there is a GPU is another question, which a file that is only printed has not.
  if (written != "gpu" && written != "auto") command::parse_ranks(written);
  return {written};
}

NodeCount OptionFormat<NodeCount>::from_text(std::string_view text) {
  command::parse_nodes(std::string(text));
  return {std::string(text)};
}

StreamText OptionFormat<StreamText>::from_text(std::string_view text) {
  (void)command::StreamChoice(std::string(text));
  return {std::string(text)};
}

SignalName OptionFormat<SignalName>::from_text(std::string_view text) {
  command::parse_signal(std::string(text));
  return {std::string(text)};
}

}  // namespace shoal

namespace shoal::command {

void RunSettings::validate() const {
  if (rdzv_backend != "c10d" && rdzv_backend != "static")
    throw std::invalid_argument(fmt::format("--rdzv-backend {}: there is c10d only", rdzv_backend));
  const NodeRange nodes = parse_nodes(nnodes.text);
  if (standalone && nodes.most > 1)
    throw std::invalid_argument(fmt::format("--standalone is for one host, and --nnodes {} for more", nnodes.text));
  if (node_rank >= nodes.most)
    throw std::invalid_argument(
        fmt::format("--node-rank {}: with --nnodes {} it is from 0 to {}", node_rank, nnodes.text, nodes.most - 1));
}

RunOptions options_of(const RunSettings& settings) {
  RunOptions options{.nodes = parse_nodes(settings.nnodes.text),
                     .node_rank = settings.node_rank,
                     .endpoint = settings.rdzv_endpoint,
                     .run_id = settings.rdzv_id,
                     .local_addr = settings.local_addr,
                     .master_addr = settings.master_addr,
                     .master_port = settings.master_port,
                     .standalone = settings.standalone,
                     .max_restarts = settings.max_restarts,
                     .monitor_interval = settings.monitor_interval,
                     .shutdown_timeout = settings.shutdown_timeout,
                     .role = settings.role,
                     .log_dir = settings.log_dir,
                     .redirects = StreamChoice(settings.redirects.text),
                     .tee = StreamChoice(settings.tee.text),
                     .shown = settings.local_ranks_filter,
                     .binding = settings.binding,
                     .program = settings.program};
  try {
    options.ranks = parse_ranks(settings.nproc_per_node.text);
  } catch (const std::invalid_argument& fault) {
    throw std::invalid_argument(fmt::format("--nproc-per-node {}: {}", settings.nproc_per_node.text, fault.what()));
  }
  for (const SignalName& signal : settings.signals_to_handle) options.signals.push_back(parse_signal(signal.text));
  const auto note = [&](const char* name, const std::optional<double>& value) {
    if (value) options.rendezvous_conf[name] = fmt::format("{}", *value);
  };
  note("join_timeout", settings.rdzv_conf.join_timeout);
  note("last_call_timeout", settings.rdzv_conf.last_call_timeout);
  note("keep_alive_interval", settings.rdzv_conf.keep_alive_interval);
  note("keep_alive_max_attempt", settings.rdzv_conf.keep_alive_max_attempt);
  if (!options.is_one_host()) endpoint_of(options);
  return options;
}

}  // namespace shoal::command
