// configure<Settings>(argc, argv): one struct is defaults, file, environment and command line.
#pragma once

#include <shoal/internal/runtime/configure/kind_of.h>
#include <shoal/internal/runtime/configure/layers.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/runtime/config_error.h>
#include <shoal/runtime/option_text.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// Settings for a program: the struct's own defaults, under `--config FILE.toml`, under variables NAME_A_B, under
/// `a.b=value` and `--a.b value` on the command line. Members are options by their names; docs/configuration.md says
/// which types they may have and how their values are written. `validate()`, if a struct in it has one, is called last
/// and says by an exception what is wrong.
///
///     struct Settings {
///       double lr = 0.05;
///       shoal::DataLoaderOptions loader = {.batch_size = 64};
///     };
///     int main(int argc, char** argv) {
///       shoal::init(argc, argv);
///       const auto settings = shoal::configure<Settings>(argc, argv);   // ./train lr=0.1 loader.batch_size=32
///
/// Ends the program after --help, --print-config and --completion (exit code 0), and after one line on stderr if
/// something is wrong (exit code 2). Threads: any, while none changes the environment.
template <class Settings>
Settings configure(int argc, char** argv, const ConfigureOptions& options = {}, Settings defaults = Settings()) {
  static_assert(config::Struct<Settings>,
                "shoal::configure: settings are a plain struct: no constructors, bases or private members");
  config::configure(config::kind_of<Settings>(), &defaults, config::request_of(argc, argv, options));
  return defaults;
}

/// The same without a program's ways: reads `arguments` (and no variables) over the defaults. Throws ConfigError.
template <class Settings>
Settings read_config(const std::vector<std::string>& arguments, Settings defaults = Settings()) {
  config::Request request{{.name = "program"}, arguments, {}};
  (void)config::apply(config::kind_of<Settings>(), &defaults, request);
  return defaults;
}

/// All settings as a TOML file, which --config reads as the same settings. Throws ConfigError for text that is not
/// UTF-8.
template <class Settings>
std::string config_text(const Settings& settings) {
  return config::toml_text(config::kind_of<Settings>().write(&settings, nullptr));
}
/// Reads such a text over the defaults. `name` stands for the file in errors. Throws ConfigError.
template <class Settings>
Settings parse_config(std::string_view text, const std::string& name = "text", Settings defaults = Settings()) {
  const config::Kind& kind = config::kind_of<Settings>();
  const config::At at;
  kind.read(&defaults, config::parse_toml(text, name), at);
  kind.validate(&defaults, at);
  return defaults;
}
/// Writes config_text() to a file, whole or not at all: beside the results of a run. Throws SystemError.
template <class Settings>
void save_config(const Settings& settings, const std::filesystem::path& file) {
  config::write_file(file, config_text(settings));
}

}  // namespace shoal
