#include "train_fashion_mnist/settings.h"

#include <stdexcept>

void Settings::validate() const {
  if (!trace.empty() && profile == 0) throw std::invalid_argument("--trace is given without --profile");
}

std::string file_of_run(const std::string& file, const Settings& settings, const std::string& mode) {
  return file.empty() || settings.mode != Mode::all ? file : file + "." + mode;
}

std::vector<std::string> modes_of(const Settings& settings) {
  switch (settings.mode) {
    case Mode::single:
      return {"single"};
    case Mode::ddp:
      return {"ddp"};
    case Mode::hogwild:
      return {"hogwild"};
    case Mode::all:
      break;
  }
  return {"single", "ddp", "hogwild"};
}
