// The options of `shoal run`, as a struct of settings: what a file, the environment and the command line say.
#pragma once

#include <shoal/internal/runtime/command/job/run_options.h>
#include <shoal/runtime/option_text.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::command {

/// A text that a function understands; as it was written. Plain.
struct RankCount {
  std::string text = "1";
};
struct NodeCount {
  std::string text = "1";
};
struct StreamText {
  std::string text = "0";
};
struct SignalName {
  std::string text;
};

/// How launchers wait for each other; in seconds, but for the number of attempts.
struct RendezvousTimes {
  std::optional<double> join_timeout = {}, last_call_timeout = {}, keep_alive_interval = {},
                        keep_alive_max_attempt = {};

  static constexpr OptionText kTexts[] = {
      {"join_timeout", "how long too few hosts wait for more (600)", {.unit = "seconds", .most = 1e9, .above = 0}},
      {"last_call_timeout", "how long enough hosts wait for more (30)", {.unit = "seconds", .least = 0, .most = 1e9}},
      {"keep_alive_interval", "how often a host says that it lives (5)", {.unit = "seconds", .most = 1e9, .above = 0}},
      {"keep_alive_max_attempt", "how often it may fail to (3)", {.most = 1e9, .above = 0}},
  };
};

/// Members in the order of --help, with torchrun's names.
struct RunSettings {
  RankCount nproc_per_node = {};
  Binding binding = Binding::none;
  int max_restarts = 0;
  double shutdown_timeout = 30;
  std::vector<SignalName> signals_to_handle = {{"SIGTERM"}, {"SIGINT"}, {"SIGHUP"}, {"SIGQUIT"}};
  std::string role = "default";

  NodeCount nnodes = {};
  int node_rank = -1;
  std::string rdzv_endpoint = {}, rdzv_id = {};
  RendezvousTimes rdzv_conf = {};
  std::string rdzv_backend = "c10d";
  double monitor_interval = 0.1;
  std::string local_addr = {};
  bool standalone = false;
  std::string master_addr = {};
  int master_port = 0;

  StreamText redirects = {}, tee = {};
  std::filesystem::path log_dir = {};
  std::vector<int> local_ranks_filter = {};
  bool no_python = false;

  std::vector<std::string> program = {};

  static constexpr OptionText kTexts[] = {
      {"nproc_per_node", "ranks on this host: a number, cpu, gpu or auto"},
      {"binding", "CPUs of each rank: none, core, cache or numa"},
      {"max_restarts", "how often all ranks are started again when one fails", {.least = 0}},
      {"shutdown_timeout", "time between SIGTERM and SIGKILL", {.unit = "seconds", .least = 0}},
      {"signals_to_handle",
       "signals that end the run in order, and are passed on to the ranks; others, as SIGUSR1 of Slurm's --signal, end "
       "it at once"},
      {"role", "what the program is told by ROLE_NAME"},
      {"nnodes", "number of hosts, or MIN:MAX"},
      {"node_rank", "this host's number, if it matters; -1: any", {.least = -1}},
      {"rdzv_endpoint", "where the launchers meet: a host of the run, and a port"},
      {"rdzv_id", "name of the run, the same on all hosts"},
      {"rdzv_conf", "join_timeout, last_call_timeout, keep_alive_interval, keep_alive_max_attempt"},
      {"rdzv_backend", "c10d is the only one"},
      {"monitor_interval",
       "how often news of other hosts are looked for",
       {.unit = "seconds", .most = 1e6, .above = 0}},
      {"local_addr", "this host, as the others reach it"},
      {"standalone", "one host, which is what --nnodes 1 says too"},
      {"master_addr", "MASTER_ADDR of the ranks; with --nnodes, as --rdzv-endpoint"},
      {"master_port", "MASTER_PORT of the ranks; 0: any", {.least = 0, .most = 65535}},
      {"redirects", "into files, not here: 0 none, 1 output, 2 error, 3 both; or 0:3,1:2"},
      {"tee", "into files as well as here"},
      {"log_dir", "where these files are; none: a folder of their own in TMPDIR, or /tmp"},
      {"local_ranks_filter", "show the output of these ranks only, as in 0,2", {.least = 0}},
      {"no_python", "accepted, since torchrun needs it for programs"},
      {"program", "the program and its arguments, where the command line names none"},
  };
  void validate() const;
};

/// What the settings mean here: GPUs are counted, signals have their numbers. Throws std::invalid_argument.
RunOptions options_of(const RunSettings& settings);

}  // namespace shoal::command

/// These throw what the text must be. What depends on the machine (gpu) is looked at by options_of().
template <>
struct shoal::OptionFormat<shoal::command::RankCount> {
  static constexpr std::string_view kType = "number, cpu, gpu or auto";
  static command::RankCount from_text(std::string_view text);
  static std::optional<std::string> to_text(const command::RankCount& count) { return count.text; }
};
template <>
struct shoal::OptionFormat<shoal::command::NodeCount> {
  static constexpr std::string_view kType = "number, or MIN:MAX";
  static command::NodeCount from_text(std::string_view text);
  static std::optional<std::string> to_text(const command::NodeCount& count) { return count.text; }
};
template <>
struct shoal::OptionFormat<shoal::command::StreamText> {
  static constexpr std::string_view kType = "0 to 3, or by rank";
  static command::StreamText from_text(std::string_view text);
  static std::optional<std::string> to_text(const command::StreamText& streams) { return streams.text; }
};
template <>
struct shoal::OptionFormat<shoal::command::SignalName> {
  static constexpr std::string_view kType = "name of a signal";
  static command::SignalName from_text(std::string_view text);
  static std::optional<std::string> to_text(const command::SignalName& signal) { return signal.text; }
};
