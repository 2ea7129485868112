// What the user asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The command line, as it crosses to the ranks.
struct Settings {
  std::string mode = "all";  // single, ddp, hogwild or all
  int nprocs = 2;            // of ddp and hogwild
  int workers = 1;           // loader processes of each rank
  std::int64_t epochs = 5;
  std::int64_t batch_size = 64;  // of each rank
  double lr = 0.05;
  std::string data;
  std::uint64_t seed = 0;
  std::string checkpoint;    // empty: none
  std::int64_t profile = 0;  // batches to measure instead of training; 0: train
  std::string trace;         // of rank 0, with profile: a file for Perfetto; empty: none
};

/// Parses and checks the command line. Exits with 0 after --help, and with 2 after one line that says what is wrong.
Settings parse_settings(int argc, char** argv);

/// The runs that the mode stands for.
std::vector<std::string> modes_of(const Settings& settings);

/// A run's own file if there are several runs: FILE.MODE. Empty stays empty.
std::string file_of_run(const std::string& file, const Settings& settings, const std::string& mode);
