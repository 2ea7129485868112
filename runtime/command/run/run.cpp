// shoal run: starts a program as several ranks.
#include <errno.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/command/job/many_hosts.h>
#include <shoal/internal/runtime/command/job/one_host.h>
#include <shoal/internal/runtime/command/run/first_process.h>
#include <shoal/internal/runtime/command/run/launch.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace shoal::command {
namespace {

/// As they were written.
struct Texts {
  std::string ranks = "1", nodes = "1", redirects = "0", tee = "0", binding = "none", conf, shown, backend = "c10d";
  std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  bool no_python = false;
};

/// --nproc_per_node is --nproc-per-node too, as with torchrun, but not shown in the help.
std::string spellings(const std::string& name) {
  std::string other = name;
  for (std::size_t i = 2; i < other.size(); ++i)
    if (other[i] == '-') other[i] = '_';
  return name + "," + other;
}

/// The errno of executing it; 0 if it may be executed.
int why_not_executable(const std::string& path) {
  if (::access(path.c_str(), X_OK) != 0) return errno;
  return std::filesystem::is_directory(path) ? EISDIR : 0;
}

/// The file that a shell would execute for this name.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (const int error = why_not_executable(name))
      throw RefusedCommand(fmt::format("{} is no program that can be executed: {}", name, ::strerror(error)),
                           error == ENOENT || error == ENOTDIR ? ExitCode::kNoProgram : ExitCode::kNoExec);
    return name;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (why_not_executable(file) == 0) return file;
  }
  throw RefusedCommand(
      fmt::format("{} is no program in PATH{}", name, why_not_executable(name) == 0 ? ": write ./" + name : ""),
      ExitCode::kNoProgram);
}

void check(RunOptions& options, const Texts& texts) {
  options.ranks = parse_ranks(texts.ranks);
  options.nodes = parse_nodes(texts.nodes);
  options.redirects = StreamChoice(texts.redirects, "--redirects");
  options.tee = StreamChoice(texts.tee, "--tee");
  options.binding = parse_binding(texts.binding);
  options.rendezvous_conf = parse_conf(texts.conf);
  options.signals = parse_signals(texts.signals);
  options.shown = parse_list(texts.shown, "--local-ranks-filter");
  if (texts.backend != "c10d" && texts.backend != "static")
    throw std::invalid_argument(fmt::format("--rdzv-backend {}: there is c10d only", texts.backend));
  if (options.max_restarts < 0)
    throw std::invalid_argument(fmt::format("--max-restarts {}: give 0 or more", options.max_restarts));
  if (!(options.shutdown_timeout >= 0))
    throw std::invalid_argument(
        fmt::format("--shutdown-timeout {}: give seconds, 0 or more", options.shutdown_timeout));
  if (!(options.monitor_interval > 0))
    throw std::invalid_argument(
        fmt::format("--monitor-interval {}: give seconds, more than 0", options.monitor_interval));
  if (options.standalone && options.nodes.most > 1)
    throw std::invalid_argument(fmt::format("--standalone is for one host, and --nnodes {} for more", texts.nodes));
  if (!options.is_one_host()) endpoint_of(options);
  if (options.node_rank >= options.nodes.most)
    throw std::invalid_argument(fmt::format("--node-rank {}: with --nnodes {} it is from 0 to {}", options.node_rank,
                                            texts.nodes, options.nodes.most - 1));
  if (options.master_port < 0 || options.master_port > 65535)
    throw std::invalid_argument(fmt::format("--master-port {}: give a port from 1 to 65535", options.master_port));
}

int run_program(RunOptions options) {
  const std::string path = find_program(options.program.front());
  stay_behind_as_first_process();
  const RunMark mark;
  if (options.run_id.empty()) options.run_id = options.is_one_host() ? mark.value().substr(0, 12) : "none";
  ::signal(SIGPIPE, SIG_IGN);  // a reader of our output that goes away ends no run
  RunResult result;
  {
    RunGuard guard(mark);
    SessionCore::current().describe_self("shoal run", -1);
    std::unique_ptr<Rendezvous> rendezvous;
    if (options.is_one_host())
      rendezvous = std::make_unique<OneHost>(options);
    else
      rendezvous = std::make_unique<ManyHosts>(options);
    result = Launch(std::move(options), path, std::move(rendezvous), mark).run();
  }
  if (result.signal != 0) {
    // As if nobody had been in between: a shell sees what ended this program.
    ::signal(result.signal, SIG_DFL);
    ::raise(result.signal);
  }
  return result.exit_code;
}

}  // namespace

void add_run(CLI::App& shoal, Action& action, const std::vector<std::string>& program) {
  CLI::App* run = shoal.add_subcommand("run", "starts a program as several ranks, and watches over them");
  run->prefix_command();  // what follows the program's name is the program's
  auto options = std::make_shared<RunOptions>();
  auto texts = std::make_shared<Texts>();
  auto option = [&](const std::string& names, auto& value, const char* help, const char* type, const char* group) {
    run->add_option(names, value, help)->type_name(type)->group(group)->take_last();
  };
  const char* const ranks = "Ranks";
  option(spellings("--nproc-per-node"), texts->ranks, "ranks on this host: a number, cpu, gpu or auto (1)", "N", ranks);
  option("--binding", texts->binding, "CPUs of each rank: none, core, cache or numa (none)", "KIND", ranks);
  option(spellings("--max-restarts"), options->max_restarts, "how often all ranks are started again when one fails (0)",
         "N", ranks);
  option(spellings("--shutdown-timeout"), options->shutdown_timeout, "time between SIGTERM and SIGKILL (30)", "SECONDS",
         ranks);
  option(
      spellings("--signals-to-handle"), texts->signals,
      "signals that end the run in order, and are passed on to the ranks (SIGTERM,SIGINT,SIGHUP,SIGQUIT); others, as "
      "SIGUSR1 of Slurm's --signal, end it at once",
      "NAMES", ranks);
  option("--role", options->role, "what the program is told by ROLE_NAME (default)", "NAME", ranks);

  const char* const hosts = "Several hosts: one launcher on each, with the same options";
  option("--nnodes", texts->nodes, "number of hosts, or MIN:MAX (1)", "N", hosts);
  option(spellings("--node-rank"), options->node_rank, "this host's number, if it matters (any)", "N", hosts);
  option(spellings("--rdzv-endpoint"), options->endpoint, "where the launchers meet: a host of the run, and a port",
         "HOST:PORT", hosts);
  option(spellings("--rdzv-id"), options->run_id, "name of the run, the same on all hosts (none)", "ID", hosts);
  option(spellings("--rdzv-conf"), texts->conf,
         "join_timeout, last_call_timeout, keep_alive_interval, keep_alive_max_attempt", "K=V,K=V", hosts);
  option(spellings("--rdzv-backend"), texts->backend, "c10d is the only one", "NAME", hosts);
  option(spellings("--monitor-interval"), options->monitor_interval,
         "how often news of other hosts are looked for (0.1)", "SECONDS", hosts);
  option(spellings("--local-addr"), options->local_addr, "this host, as the others reach it", "HOST", hosts);
  run->add_flag("--standalone", options->standalone, "one host, which is what --nnodes 1 says too")->group(hosts);
  option(spellings("--master-addr"), options->master_addr,
         "MASTER_ADDR of the ranks; with --nnodes, as --rdzv-endpoint", "HOST", hosts);
  option(spellings("--master-port"), options->master_port, "MASTER_PORT of the ranks", "PORT", hosts);

  const char* const output = "Output";
  option("-r,--redirects", texts->redirects, "into files, not here: 0 none, 1 output, 2 error, 3 both; or 0:3,1:2",
         "WHICH", output);
  option("-t,--tee", texts->tee, "into files as well as here", "WHICH", output);
  option(spellings("--log-dir"), options->log_dir, "where these files are (/tmp/shoal-run)", "FOLDER", output);
  option(spellings("--local-ranks-filter"), texts->shown, "show the output of these ranks only, as in 0,2", "RANKS",
         output);
  run->add_flag(spellings("--no-python"), texts->no_python, "accepted, since torchrun needs it for programs")
      ->group("");
  run->footer(
      "Exit codes:\n"
      "  0    all ranks ended well\n"
      "  1    a rank failed for good, or too few hosts are there\n"
      "  2    wrong usage: an unknown option, no program named\n"
      "  3    the rendezvous cannot be reached, or is gone\n"
      "  4    an option has a bad value, as a negative count\n"
      "  126  the program is there and cannot be executed\n"
      "  127  there is no such program\n"
      "A signal that ends the launcher ends it as if nobody had been in between.\n\n"
      "The page run.md has the variables that ranks get, and the differences from torchrun (in docs/ of the sources, "
      "in share/doc/shoal/ where shoal is installed).");

  run->callback([run, options, texts, &program, &action] {
    if (const auto unknown = run->remaining(); !unknown.empty())
      throw RefusedCommand(fmt::format("run: there is no option {}: see shoal run --help", unknown.front()),
                           ExitCode::kUsage);
    options->program = program;
    if (options->program.empty())
      throw RefusedCommand("run: which program? shoal run --nproc-per-node 4 -- ./program ARGUMENTS", ExitCode::kUsage);
    check(*options, *texts);
    action = [options] { return run_program(std::move(*options)); };
  });
}

}  // namespace shoal::command
