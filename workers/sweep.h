// run_or_sweep: one run of a configured function, or with --sweep all combinations of some options.
#pragma once

#include <shoal/internal/runtime/sweep/plan.h>
#include <shoal/internal/workers/sweep/run_sweep.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/configure.h>
#include <shoal/workers/pool_options.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// How a sweep runs. The command line goes over it.
struct SweepOptions {
  std::filesystem::path folder = "sweep";  ///< `--sweep-folder`: where each run has a folder
  PoolOptions pool = {};                   ///< who runs them; `--sweep-processes`: how many at once
};

namespace detail {

template <class F>
struct SweepFunction;
template <class R, class Settings>
struct SweepFunction<R (*)(Settings)> {
  using Result = R;
  using Config = std::remove_cvref_t<Settings>;
};
template <class R, class Settings, class Folder>
struct SweepFunction<R (*)(Settings, Folder)> {
  using Result = R;
  using Config = std::remove_cvref_t<Settings>;
};

template <auto kFunction>
auto call_configured(const typename SweepFunction<decltype(kFunction)>::Config& settings,
                     const std::filesystem::path& folder) {
  if constexpr (std::is_invocable_v<decltype(kFunction), decltype(settings), decltype(folder)>)
    return kFunction(settings, folder);
  else
    return kFunction(settings);
}

/// The result as the file says it: a struct's members, or one value.
template <class Result>
std::string result_text(const Result& result, double seconds) {
  config::Node inner = config::kind_of<Result>().write(&result, nullptr);
  if (inner.kind != config::Node::Kind::table) {
    config::Node table;
    table.kind = config::Node::Kind::table;
    table.entries.push_back({"result", {}, std::move(inner)});
    inner = std::move(table);
  }
  config::Node file, time;
  time.kind = config::Node::Kind::real;
  time.real = seconds;
  file.kind = config::Node::Kind::table;
  file.entries.push_back({"seconds", {}, std::move(time)});
  file.entries.push_back({"result", {}, std::move(inner)});
  return config::toml_text(file);
}

/// Runs in a worker.
template <auto kFunction>
std::string run_configured(std::string config, std::string folder) {
  using Function = SweepFunction<decltype(kFunction)>;
  const auto started = std::chrono::steady_clock::now();
  const RunOutput output(folder);
  const auto settings = parse_config<typename Function::Config>(config, folder + "/config.toml");
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  if constexpr (std::is_void_v<typename Function::Result>) {
    call_configured<kFunction>(settings, folder);
    struct Nothing {};
    return result_text(Nothing{}, seconds());
  } else {
    const auto result = call_configured<kFunction>(settings, folder);
    return result_text(result, seconds());
  }
}

}  // namespace detail

/// A program's main(), behind shoal::init(): configure()s the parameter of kFunction and calls it; with `--sweep
/// lr=0.1,0.01 batch_size=32,64` in worker processes for each combination of these values. A run's folder has its
/// settings (config.toml), what it wrote to its standard output and error (log.txt), and what the function returned (result.toml: a number, a text, or a struct of these, whose
/// members are columns of the table), or what it threw (error.txt). A sweep that is started again in the same folder
/// leaves out the runs that are done.
///
///     struct Result { double loss, accuracy; };
///     Result train(const Settings& settings, const std::filesystem::path& folder);   // or without the folder
///     int main(int argc, char** argv) {
///       shoal::init(argc, argv);
///       return shoal::run_or_sweep<train>(argc, argv);
///
/// Without --sweep the folder is the current one, and what kFunction throws goes on. Returns 0, or 1 if a run of a
/// sweep failed, or 2 if the folder cannot be written or another sweep is at work there.
template <auto kFunction>
int run_or_sweep(int argc, char** argv, const ConfigureOptions& options = {}, const SweepOptions& sweep = {}) {
  using Settings = typename detail::SweepFunction<decltype(kFunction)>::Config;
  config::Request request = config::request_of(argc, argv, options);
  request.more_options = detail::sweep_options();
  const config::Kind& kind = config::kind_of<Settings>();
  Settings settings;
  detail::SweepRequest asked;
  std::vector<detail::SweepRun> runs;
  try {
    asked = detail::take_sweep(request.arguments);
    request.arguments = asked.arguments;
    if (asked.is_sweep)
      runs = detail::plan_sweep(asked, [&](const std::vector<std::string>& arguments) {
        config::Request one = request;
        one.arguments = arguments;
        Settings its;
        (void)config::apply(kind, &its, one);
        return config_text(its);
      });
  } catch (const ConfigError& error) {
    return detail::say_fault(request.options.name, error.what());
  }
  config::configure(kind, &settings, request);
  if (!asked.is_sweep) {
    detail::call_configured<kFunction>(settings, ".");
    return 0;
  }
  PoolOptions pool = sweep.pool;
  if (asked.processes) pool.processes = *asked.processes;
  try {
    return detail::run_sweep(asked, runs, asked.folder.value_or(sweep.folder), pool,
                             &detail::run_configured<kFunction>) > 0;
  } catch (const std::exception& error) {
    return detail::say_fault(request.options.name, error.what());
  }
}

}  // namespace shoal
