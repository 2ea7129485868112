// shoal run: starts a program as several ranks.
#include <errno.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/command/job/many_hosts.h>
#include <shoal/internal/runtime/command/job/one_host.h>
#include <shoal/internal/runtime/command/job/run_settings.h>
#include <shoal/internal/runtime/command/job/settings_words.h>
#include <shoal/internal/runtime/command/run/first_process.h>
#include <shoal/internal/runtime/command/run/launch.h>
#include <shoal/internal/runtime/command/run/program_sweep.h>
#include <shoal/internal/runtime/command/subcommand.h>
#include <shoal/internal/runtime/configure/kind_of.h>
#include <shoal/internal/runtime/environment/nearest_name.h>
#include <shoal/ipc/error.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace shoal::command {
namespace {

constexpr const char* kRanks = "Ranks";
constexpr const char* kHosts = "Several hosts: one launcher on each, with the same options";
constexpr const char* kOutput = "Output";

constexpr SettingWords kWords[] = {
    {"nproc_per_node", "N", kRanks},
    {"binding", "KIND", kRanks},
    {"max_restarts", "N", kRanks},
    {"shutdown_timeout", "SECONDS", kRanks},
    {"signals_to_handle", "NAMES", kRanks},
    {"role", "NAME", kRanks},
    {"nnodes", "N", kHosts},
    {"node_rank", "N", kHosts},
    {"rdzv_endpoint", "HOST:PORT", kHosts},
    {"rdzv_id", "ID", kHosts},
    {"rdzv_conf", "K=V,K=V", kHosts},
    {"rdzv_backend", "NAME", kHosts},
    {"monitor_interval", "SECONDS", kHosts},
    {"local_addr", "HOST", kHosts},
    {"standalone", "", kHosts},
    {"master_addr", "HOST", kHosts},
    {"master_port", "PORT", kHosts},
    {"redirects", "WHICH", kOutput, "r"},
    {"tee", "WHICH", kOutput, "t"},
    {"log_dir", "FOLDER", kOutput},
    {"local_ranks_filter", "RANKS", kOutput},
    {"no_python", "", ""},
};

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

[[noreturn]] void refuse_option(const CLI::App& run, const std::string& option) {
  std::vector<std::string> names;
  for (const CLI::Option* each : run.get_options())
    for (const std::string& name : each->get_lnames()) names.push_back("--" + name);
  const std::string meant = nearest_name(option.substr(0, option.find('=')), names);
  throw RefusedCommand(fmt::format("run: there is no option {}: {}", option,
                                   meant.empty() ? "see shoal run --help" : "did you mean " + meant + "?"),
                       ExitCode::kUsage);
}

/// Where a sweep wants to know why the program failed. Taken out of the environment: a launcher further down is not meant.
std::string take_failure_file() {
  const char* const file = std::getenv(kFailureVariable);
  std::string path = file ? file : "";
  ::unsetenv(kFailureVariable);
  return path;
}

int run_program(RunOptions options) {
  ::signal(SIGCHLD, SIG_DFL);  // ignored, as some starters leave it, the kernel would keep no exit status
  const std::string failure_file = take_failure_file();
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
  if (!failure_file.empty() && !result.cause.empty()) write_failure(failure_file, result.program_exit, result.cause);
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
  auto settings = std::make_shared<RunSettings>();
  auto options =
      std::make_shared<SettingsOptions>(*run, config::kind_of<RunSettings>(), settings.get(), "shoal run", kWords);
  auto sweep = std::make_shared<ProgramSweep>();
  const char* const sweeps = "Sweeps: the program once for each combination of values";
  run->add_option("--sweep", sweep->axes,
                  "run the program with NAME=VALUE words behind its arguments, for all combinations of these; started "
                  "again, those that are left")
      ->type_name("NAME=VALUE,VALUE...")
      ->expected(1, -1)
      ->group(sweeps);
  run->add_option("--sweep-folder", sweep->folder, "where each has a folder with its settings, log and result (sweep)")
      ->type_name("FOLDER")
      ->group(sweeps);
  run->add_option("--at-once", sweep->at_once, "how many run at the same time (1)")->type_name("N")->group(sweeps);
  run->footer(
      "Exit codes:\n"
      "  0    all ranks ended well, of a sweep in all runs\n"
      "  1    a rank failed for good, or too few hosts are there\n"
      "  2    wrong usage: an unknown option, no program named\n"
      "  3    the rendezvous cannot be reached, or is gone\n"
      "  4    an option has a bad value, as a negative count\n"
      "  126  the program is there and cannot be executed\n"
      "  127  there is no such program\n"
      "A signal that ends the launcher ends it as if nobody had been in between.\n\n"
      "The page run.md has the variables that ranks get, and the differences from torchrun (in docs/ of the sources, "
      "in share/doc/shoal/ where shoal is installed).");

  run->callback([run, options, settings, sweep, &program, &action] {
    if (const auto unknown = run->remaining(); !unknown.empty()) refuse_option(*run, unknown.front());
    options->read();
    if (!program.empty()) settings->program = program;
    if (const auto text = options->finish()) {
      action = [text] { return std::fputs(text->c_str(), stdout) < 0 ? ExitCode::kFailed : 0; };
      return;
    }
    if (settings->program.empty())
      throw RefusedCommand("run: which program? shoal run --nproc-per-node 4 -- ./program ARGUMENTS", ExitCode::kUsage);
    if (!sweep->axes.empty()) {
      action = [settings, sweep] {
        (void)find_program(settings->program.front());  // before any folder is made
        return sweep_program(*settings, *sweep);
      };
      return;
    }
    action = [given = options_of(*settings)] { return run_program(given); };
  });
}

}  // namespace shoal::command
