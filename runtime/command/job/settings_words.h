// A struct of settings as the options of a subcommand.
#pragma once

#include <shoal/internal/runtime/configure/layers.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal::command {

/// How --help shows a member: its value, the group that it stands in ("": it is accepted, and not shown), and its letter,
/// if it has one.
struct SettingWords {
  std::string_view name;
  const char* value;
  const char* group;
  const char* letter = "";
};

/// Options of a subcommand which are a struct's members, and what every program with settings has besides (--config,
/// --print-config, --save-config). CLI11 takes the words apart and makes the help; what they mean is configure's matter:
/// the same values, layers and errors. Lives as long as the application. One thread.
class SettingsOptions {
 public:
  /// `value`: the struct, with its defaults. `program`: its name before variables, as "shoal run".
  SettingsOptions(CLI::App& command, const config::Kind& kind, void* value, std::string program,
                  std::span<const SettingWords> words);

  /// Called when the words were taken apart: reads files, variables and words into the struct. Throws ConfigError.
  void read();
  /// Called when the struct is as it stays: saves it, if that was asked for. Returns it as a file if that is all that was
  /// asked for. Throws SystemError.
  std::optional<std::string> finish() const;

 private:
  void add_value(CLI::App& command, const std::string& path, const config::Part& part, const SettingWords& words);
  void add(CLI::App& command, const config::Part& part, const SettingWords& words);

  const config::Kind& kind_;
  void* value_;
  config::Request request_;
  config::Answer answer_;
};

}  // namespace shoal::command
