// Defaults, files, the environment and the command line, one over the other.
#pragma once

#include <shoal/internal/runtime/configure/kind.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal {

/// How a program is configured.
struct ConfigureOptions {
  std::string name = {};   ///< the program's, in texts and, in capitals, of its variables; empty: its file's name
  std::string about = {};  ///< what `--help` says of it
};

namespace config {

/// The variables of a process: "NAME=value".
using Environment = std::vector<std::string>;
Environment own_environment();

/// A program's command line, without the program's own name.
struct Request {
  ConfigureOptions options;
  std::vector<std::string> arguments;
  Environment environment;
  /// More of the program's own options, for --help: how it is written, and what it does.
  std::vector<std::pair<std::string, std::string>> more_options = {};
};

/// What came of it.
struct Answer {
  bool is_text = false;  // --help and the like: `text` is to be printed, and the program ends
  std::string text = {};
  std::vector<std::string> warnings = {};
  std::filesystem::path save = {};  // --save-config
};

/// Reads all layers into `value`, a struct of settings with its defaults. Throws ConfigError.
Answer apply(const Kind& kind, void* value, const Request& request);
/// The options of a program's main(). `arguments`: argc and argv.
Request request_of(int argc, char** argv, const ConfigureOptions& options);
/// apply(), as a program does it: prints, and exits with 0 after --help, with 2 after an error.
void configure(const Kind& kind, void* value, const Request& request);

/// NAME_A_B: the variable of an option.
std::string variable_of(std::string_view program, std::string_view option);
/// The options of a struct, as deep as they have names: "loader.batch_size".
struct Leaf {
  std::string path;
  Part part;
};
std::vector<Leaf> leaves_of(const Kind& kind, void* value);

std::string help_text(const Kind& kind, void* value, const Request& request);
std::string bash_completion(const Kind& kind, void* value, const Request& request);

}  // namespace config
}  // namespace shoal
