// Values as they are typed on a command line: "3,4", "[a, b]", "{lr=0.1}", "'a, b'".
#pragma once

#include <shoal/internal/runtime/configure/kind.h>
#include <shoal/internal/runtime/configure/node.h>

#include <string>
#include <string_view>
#include <vector>

namespace shoal::config {

/// A node of kind text as a list: with or without brackets, or nothing for an empty one. Elements in quotes are strings,
/// others are text. Throws ConfigError. Other nodes stay as they are.
Node as_list(const Node& node, const At& at);
/// The same for tables: NAME=VALUE with commas between them, with or without braces.
Node as_table(const Node& node, const At& at);
/// Whether the text begins like a table.
bool looks_like_table(std::string_view text);
/// Takes the quotes off a text that is in quotes as a whole. Returns false if it is not.
bool unquote(std::string_view text, std::string& result);
/// Parts between commas that are in no quotes and brackets, as they are written. Throws std::invalid_argument.
std::vector<std::string> split_at_commas(std::string_view text);

}  // namespace shoal::config
