// What the user asked for.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/data/mnist.h>

#include <cstdint>
#include <string>
#include <vector>

enum class Mode { single, ddp, hogwild, all };

/// All options, as shoal::configure() reads them; so they cross to the ranks.
struct Settings {
  Mode mode = Mode::all;
  int nprocs = 2;
  int workers = 1;
  std::int64_t epochs = 5;
  std::int64_t batch_size = 64;
  double lr = 0.05;
  std::string data = shoal::kFashionMnistDirectory;
  std::uint64_t seed = 0;
  std::string checkpoint;    // empty: none
  std::int64_t profile = 0;  // 0: train
  std::string trace;         // empty: none

  static constexpr shoal::OptionText kTexts[] = {
      {"mode", "what is run; all: one after the other"},
      {"nprocs", "processes of ddp and hogwild", {.least = 1}},
      {"workers", "loader processes of each training process; 0: load in it", {.least = 0}},
      {"epochs", "passes over the training set", {.least = 1}},
      {"batch_size", "samples a step of each process", {.least = 1}},
      {"lr", "learning rate at the start; it falls to zero", {.most = 1e300, .above = 0}},
      {"data", "folder with the idx files, gzipped or not"},
      {"seed", "of the network's start and the samples' order"},
      {"checkpoint", "save here after every epoch, and go on from it if it is there; with mode all, FILE.MODE each"},
      {"profile",
       "instead of training to the end: run this many batches of each mode and say where the time goes",
       {.least = 0}},
      {"trace",
       "with profile: a file with every operation of rank 0, for ui.perfetto.dev; with mode all, FILE.MODE each"},
  };
  /// Throws std::invalid_argument.
  void validate() const;
};

/// The runs that the mode stands for.
std::vector<std::string> modes_of(const Settings& settings);

/// A run's own file if there are several runs: FILE.MODE. Empty stays empty.
std::string file_of_run(const std::string& file, const Settings& settings, const std::string& mode);
