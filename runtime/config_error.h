// What is wrong with a configuration.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace shoal {

/// A configuration that cannot be: `what()` names the place in the file, the variable or the argument, the option, what
/// is there, and what may be there.
class ConfigError : public std::invalid_argument {
 public:
  /// `text` says it all; `option`: the option's name, if it is about one.
  explicit ConfigError(const std::string& text, std::string option = "")
      : std::invalid_argument(text), option_(std::move(option)) {}
  const std::string& option() const noexcept { return option_; }  ///< "loader.batch_size"; empty: it is about none

 private:
  std::string option_;
};

}  // namespace shoal
