// How --help looks.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace shoal::command {

/// CLI11's, without the spellings with underscores, which are accepted but not advertised.
class Help : public CLI::Formatter {
 public:
  Help() { column_width(38); }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
};

}  // namespace shoal::command
