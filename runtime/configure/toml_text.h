// Configurations as TOML.
#pragma once

#include <shoal/internal/runtime/configure/node.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace shoal::config {

/// Reads a file's text. Throws ConfigError, with line and column.
Node parse_toml(std::string_view text, const std::string& file);
/// Reads a file. Throws ConfigError.
Node read_toml(const std::filesystem::path& file);
/// A table as a file that parse_toml() reads as the same. Throws ConfigError for text that is not UTF-8.
std::string toml_text(const Node& table);
/// A value in one line, for messages.
std::string value_text(const Node& node);
/// Writes a file, whole or not at all. Throws SystemError.
void write_file(const std::filesystem::path& file, std::string_view text);

}  // namespace shoal::config
