// What the user asked for.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/data/mnist.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "training/autocast.h"
#include "training/learning_rate.h"

/// usual, all: several, one after the other.
enum class Mode : std::uint8_t { single, ddp, hogwild, data_parallel, usual, all };

/// idx: in memory, as its files have it. beton: samples of a mapped .beton file.
enum class DataFormat : std::uint8_t { idx, beton };

/// What both libtorch and shoal::hogwild have. momentum: SGD with it.
enum class OptimizerName : std::uint8_t { sgd, momentum, adam, adamw, adagrad, rmsprop };

/// All options, as shoal::configure() reads them; so they cross to the ranks.
struct Settings {
  Mode mode = Mode::usual;
  int nprocs = 2;
  int workers = 1;
  std::int64_t epochs = 5;
  std::int64_t batch_size = 64;
  OptimizerName optimizer = OptimizerName::momentum;
  std::optional<double> lr;
  LearningRate schedule;
  Amp amp = Amp::none;
  bool join = false;
  std::vector<double> shares;
  std::string data = shoal::kFashionMnistDirectory;
  DataFormat data_format = DataFormat::idx;
  std::filesystem::path cache;  // of the .beton file; empty: the user's
  std::uint64_t seed = 0;
  std::filesystem::path checkpoint;   // empty: none
  std::int64_t checkpoint_every = 0;  // 0: at ends of epochs
  std::chrono::seconds grace{30};
  std::filesystem::path log;  // empty: none
  std::int64_t log_every = 50;
  std::filesystem::path plots;  // empty: none
  std::int64_t profile = 0;     // 0: train
  std::string trace;            // empty: none

  static constexpr shoal::OptionText kTexts[] = {
      {"mode", "what is run; usual: single, ddp and hogwild, one after the other; all: data_parallel, too"},
      {"nprocs", "processes of ddp, hogwild and data_parallel", {.least = 1}},
      {"workers", "loader processes of each training process; 0: load in it", {.least = 0}},
      {"epochs", "passes over the training set", {.least = 1}},
      {"batch_size", "samples a step of each process", {.least = 1}},
      {"optimizer", "momentum is SGD with momentum"},
      {"lr", "full learning rate; none: what suits the optimizer", {.most = 1e300, .above = 0}},
      {"amp", "bf16: the forward pass in mixed precision"},
      {"join", "ddp, hogwild: every sample once, so shares may differ; ddp's ranks then end together by Join"},
      {"shares", "with join: how the training set is divided, a number for each process; none: equally", {.above = 0}},
      {"data", "folder with the idx files, gzipped or not"},
      {"data_format", "beton: train from a .beton file, which is written at first use"},
      {"cache", "folder of the .beton file; none: $XDG_CACHE_HOME/shoal/fashion-mnist, or that in ~/.cache"},
      {"seed", "of the network's start and the samples' order"},
      {"checkpoint", "folder: go on from the last checkpoint in it, and save there; of several modes FOLDER/MODE each"},
      {"checkpoint_every",
       "steps from one to the next; 0: at ends of epochs, as always with hogwild and join",
       {.least = 0}},
      {"grace", "with checkpoint: how long ranks have to save when SIGTERM or Ctrl-C comes"},
      {"log", "file of JSON lines, appended to: losses, accuracies, learning rates"},
      {"log_every", "with log: steps from one line to the next", {.least = 1}},
      {"plots", "with log: folder for pictures of it, drawn at the end"},
      {"profile",
       "instead of training to the end: run this many batches of each mode and say where the time goes",
       {.least = 0}},
      {"trace",
       "with profile: a file with every operation of rank 0, for ui.perfetto.dev; of several modes FILE.MODE each"},
  };
  /// Throws std::invalid_argument.
  void validate() const;
};

/// As the user writes it.
std::string name_of(Mode mode);
std::string name_of(OptimizerName optimizer);

/// The runs that the mode stands for.
std::vector<Mode> modes_of(const Settings& settings);

/// The processes that train in a mode, each with a loop of its own: data_parallel has one loop.
int ranks_of(Mode mode, const Settings& settings);

/// A run's own file or folder, if there are several runs. Empty stays empty.
std::string file_of_run(const std::string& file, const Settings& settings, Mode mode);
std::filesystem::path folder_of_run(const std::filesystem::path& folder, const Settings& settings, Mode mode);

/// The full learning rate.
double rate_of(const Settings& settings);
