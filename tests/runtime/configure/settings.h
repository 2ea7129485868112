// Settings with members of every kind, for the tests of configure().
#pragma once

#include <shoal/runtime/configure.h>
#include <shoal/runtime/options.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace shoal::test {

enum class Mode { single, ddp, hogwild };

struct Sgd {
  double lr = 0.1;
  double momentum = 0;
  bool operator==(const Sgd&) const = default;
};
struct Adam {
  double lr = 0.001;
  std::array<double, 2> betas = {0.9, 0.999};
  bool operator==(const Adam&) const = default;
  void validate() const {
    if (betas[0] >= 1) throw std::invalid_argument("betas must be below 1");
  }
};
struct Loader {
  std::int64_t batch_size = 64;
  bool shuffle = true;
  std::vector<int> shape = {3, 4};
  std::size_t cache = 0;
  std::chrono::milliseconds timeout{500};
  bool operator==(const Loader&) const = default;

  static constexpr OptionText kTexts[] = {
      {"batch_size", "samples in a batch", {.least = 1}},
      {"cache", "memory for samples", {.unit = "bytes"}},
  };
};
struct Settings {
  Mode mode = Mode::single;
  double lr = 0.05;
  std::string title = "first";
  std::filesystem::path data = "/data";
  std::optional<int> limit = {};
  std::optional<std::string> comment = {};
  Loader loader = {};
  std::variant<Sgd, Adam> optim = {};
  std::map<std::string, int> weights = {{"a", 1}};
  std::vector<std::string> tags = {};
  std::vector<Loader> loaders = {};
  void (*callback)(int) = nullptr;
  bool operator==(const Settings&) const = default;

  static constexpr OptionText kTexts[] = {
      {"lr", "learning rate at the start", {.above = 0}},
      {"mode", "what is run"},
  };
};

/// Reads the layers that are given.
template <class T = Settings>
T layered(const std::string& file, const config::Environment& environment, std::vector<std::string> arguments,
          T settings = {}) {
  config::Request request{{.name = "train"}, std::move(arguments), environment};
  const std::filesystem::path path = std::filesystem::path(file);
  if (!file.empty()) request.arguments.insert(request.arguments.begin(), {"--config", path.string()});
  (void)config::apply(config::kind_of<T>(), &settings, request);
  return settings;
}

/// What is said of arguments that cannot be.
template <class T = Settings>
std::string fault_of(const std::vector<std::string>& arguments, const config::Environment& environment = {}) {
  try {
    (void)layered<T>("", environment, arguments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no fault";
}
/// What is said of a file's text.
template <class T = Settings>
std::string fault_in(const std::string& text) {
  try {
    (void)parse_config<T>(text, "train.toml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no fault";
}

}  // namespace shoal::test
