// Trains a small convolutional network on Fashion-MNIST four times: in one process, with two processes and
// DistributedDataParallel, with two processes and Hogwild, with one loop and two workers of a DataParallel. The parts are in
// train_fashion_mnist/:
//
//   settings    the options                          shards         which samples a rank trains on
//   data        read once                            learner        how a rank computes and steps, in each mode
//   beton       the data as a .beton file            evaluation     how good it is, exactly
//   loaders     how they come to a rank              agreement      sums over ranks; whether all stop
//   network     the model                            checkpointing  saving and going on
//   optimizer   by name, libtorch's and Hogwild's    progress       what is counted, and the log
//   training    what one rank does                   job            what a rank is given, what comes back
//   run         the parent's side of a run           results        the table
//
// and in training/ what it has in common with train_language_model. With --sweep it does so for all combinations of some
// options. docs/training-programs.md says how to use it.
//
// Exit codes: 0 done, 1 a rank failed, 2 something is wrong with what was asked for.
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/init.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/sweep.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train_fashion_mnist/data.h"
#include "train_fashion_mnist/run.h"
#include "train_fashion_mnist/settings.h"
#include "training/pictures.h"

namespace {

/// What a sweep's table shows of a run; of several modes each has columns of its own.
std::map<std::string, double> columns_of(const std::vector<RunResult>& results) {
  std::map<std::string, double> columns;
  for (const RunResult& result : results) {
    const std::string prefix = results.size() == 1 ? "" : result.mode + "_";
    columns[prefix + "accuracy"] = result.test_accuracy;
    columns[prefix + "loss"] = result.loss;
  }
  return columns;
}

/// Paths of what is written are below the folder, which is the current one but in a sweep.
Settings in_folder(Settings settings, const std::filesystem::path& folder) {
  for (std::filesystem::path* path : {&settings.checkpoint, &settings.log, &settings.plots})
    if (!path->empty()) *path = folder / *path;
  if (!settings.trace.empty()) settings.trace = folder / settings.trace;
  return settings;
}

std::map<std::string, double> run_modes(const Settings& settings, Show show) {
  check_runs(settings);
  const Data data = load_data(settings);
  std::vector<RunResult> results;
  for (const Mode mode : modes_of(settings)) results.push_back(run(mode, settings, data, show));
  if (show == Show::progress) print_results(results);
  if (settings.profile == 0) draw_pictures(settings.log, settings.plots);
  return columns_of(results);
}

/// The program's work; in a sweep, in a worker, that of one combination.
std::map<std::string, double> work(const Settings& settings, const std::filesystem::path& folder) {
  if (folder != ".") return run_modes(in_folder(settings, folder), Show::nothing);
  catch_interrupts();
  return run_modes(settings, Show::progress);
}

int fail(int code, const std::exception& error) {
  fmt::print(stderr, "train_fashion_mnist: {}\n", shoal::describe(error));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  try {
    // One combination at a time: each starts processes of its own, which compute with all CPUs.
    return shoal::run_or_sweep<work>(
        argc, argv,
        {.about =
             "Trains a small convolutional network on Fashion-MNIST: in one process, with DistributedDataParallel, "
             "with Hogwild, with DataParallel, or all four one after the other."},
        {.pool = {.processes = 1}});
  } catch (const Interrupted& interrupted) {
    fmt::print(stderr, "interrupted\n");
    // As shells expect of a program that a signal ended.
    ::signal(interrupted.signal(), SIG_DFL);
    ::raise(interrupted.signal());
    return 128 + interrupted.signal();
  } catch (const shoal::DatasetError& error) {
    return fail(2, error);
  } catch (const shoal::ProcessRaised& error) {
    // A rank has found that a checkpoint is another training's.
    return fail(error.exception_type() == "shoal::CheckpointError" ? 2 : 1, error);
  } catch (const std::invalid_argument& error) {
    return fail(2, error);
  } catch (const std::exception& error) {
    return fail(1, error);
  }
}
