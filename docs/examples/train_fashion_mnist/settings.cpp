#include "train_fashion_mnist/settings.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

void Settings::validate() const {
  if (!trace.empty() && profile == 0) throw std::invalid_argument("--trace is given without --profile");
  if (!plots.empty() && log.empty())
    throw std::invalid_argument("--plots is given without --log: pictures are drawn of it");
  if (join && data_format == DataFormat::beton)
    throw std::invalid_argument(
        "--join is given with --data-format beton: a BetonLoader gives all ranks equally many samples");
  if (!cache.empty() && data_format != DataFormat::beton)
    throw std::invalid_argument("--cache is given without --data-format beton");
  if (!shares.empty() && !join) throw std::invalid_argument("--shares is given without --join");
  if (!shares.empty() && shares.size() != std::size_t(nprocs))
    throw std::invalid_argument(fmt::format("--shares has {} numbers for {} processes", shares.size(), nprocs));
}

std::string name_of(Mode mode) {
  constexpr std::array kNames{"single", "ddp", "hogwild", "data_parallel", "usual", "all"};
  return kNames.at(std::size_t(mode));
}

std::string name_of(OptimizerName optimizer) {
  constexpr std::array kNames{"sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop"};
  return kNames.at(std::size_t(optimizer));
}

std::vector<Mode> modes_of(const Settings& settings) {
  if (settings.mode == Mode::usual) return {Mode::single, Mode::ddp, Mode::hogwild};
  if (settings.mode == Mode::all) return {Mode::single, Mode::ddp, Mode::hogwild, Mode::data_parallel};
  return {settings.mode};
}

int ranks_of(Mode mode, const Settings& settings) {
  return mode == Mode::ddp || mode == Mode::hogwild ? settings.nprocs : 1;
}

std::string file_of_run(const std::string& file, const Settings& settings, Mode mode) {
  return file.empty() || modes_of(settings).size() == 1 ? file : file + "." + name_of(mode);
}

std::filesystem::path folder_of_run(const std::filesystem::path& folder, const Settings& settings, Mode mode) {
  return folder.empty() || modes_of(settings).size() == 1 ? folder : folder / name_of(mode);
}

double rate_of(const Settings& settings) {
  if (settings.lr) return *settings.lr;
  switch (settings.optimizer) {
    case OptimizerName::sgd:
      return 0.1;
    case OptimizerName::momentum:
      return 0.05;
    case OptimizerName::adam:
    case OptimizerName::adamw:
    case OptimizerName::rmsprop:
      return 1e-3;
    case OptimizerName::adagrad:
      return 1e-2;
  }
  return 0;
}
