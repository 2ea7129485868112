#include "train_fashion_mnist/settings.h"

#include <shoal/workers/data/mnist.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

namespace {

/// CLI11's own checks say up to which number, in 309 digits.
template <class Allowed>
CLI::Validator number(const std::string& what, Allowed allowed) {
  return CLI::Validator(
      [what, allowed](const std::string& text) {
        double value = 0;
        const bool is_number = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
        return is_number && allowed(value) ? std::string() : text + " is no number " + what;
      },
      "NUMBER");
}

}  // namespace

Settings parse_settings(int argc, char** argv) {
  const CLI::Validator above_zero = number("above 0", [](double value) { return value > 0; });
  const CLI::Validator from_zero_on = number("from 0 on", [](double value) { return value >= 0; });
  Settings settings;
  settings.data = shoal::kFashionMnistDirectory;
  CLI::App app(
      "Trains a small convolutional network on Fashion-MNIST: in one process, with DistributedDataParallel, with "
      "Hogwild, or all three one after the other.");
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--mode", settings.mode, "single, ddp, hogwild or all")
      ->check(CLI::IsMember({"single", "ddp", "hogwild", "all"}));
  app.add_option("--nprocs", settings.nprocs, "processes of ddp and hogwild")->check(above_zero);
  app.add_option("--workers", settings.workers, "loader processes of each training process; 0: load in it")
      ->check(from_zero_on);
  app.add_option("--epochs", settings.epochs, "passes over the training set")->check(above_zero);
  app.add_option("--batch-size", settings.batch_size, "samples a step of each process")->check(above_zero);
  app.add_option("--lr", settings.lr, "learning rate at the start; it falls to zero")->check(above_zero);
  app.add_option("--data", settings.data, "folder with the idx files, gzipped or not");
  app.add_option("--seed", settings.seed, "of the network's start and the samples' order");
  app.add_option("--checkpoint", settings.checkpoint,
                 "save here after every epoch, and go on from it if it is there; with --mode all, FILE.MODE each");
  CLI::Option* profile =
      app.add_option("--profile", settings.profile,
                     "instead of training to the end: run this many batches of each mode and say where the time goes")
          ->check(from_zero_on);
  app.add_option("--trace", settings.trace,
                 "with --profile: a file with every operation of rank 0, for ui.perfetto.dev; with --mode all, "
                 "FILE.MODE each")
      ->needs(profile);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) std::exit(app.exit(error));
    std::cerr << "train_fashion_mnist: " << error.what() << "\n";
    std::exit(2);
  }
  return settings;
}

std::string file_of_run(const std::string& file, const Settings& settings, const std::string& mode) {
  return file.empty() || settings.mode != "all" ? file : file + "." + mode;
}

std::vector<std::string> modes_of(const Settings& settings) {
  if (settings.mode == "all") return {"single", "ddp", "hogwild"};
  return {settings.mode};
}
