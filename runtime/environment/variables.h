// Reads and checks the environment variables of a launcher; errors name the variable.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace shoal {

/// More than anyone starts: a larger number is no number of processes.
constexpr int kMostRanks = 1 << 24;

/// Plain value, used within one call of environment(). An empty variable counts as one that is not set. Errors are
/// std::invalid_argument with variable, value, and what to do.
class Variables {
 public:
  /// Looks a variable up, like getenv; tests bring another one.
  using Lookup = std::function<const char*(const char* name)>;
  /// `launcher`: who should have set them, for messages.
  Variables(Lookup lookup, std::string launcher) : lookup_(std::move(lookup)), launcher_(std::move(launcher)) {}

  bool has(const char* name) const { return text(name).has_value(); }
  std::optional<std::string> text(const char* name) const;
  std::string text_or(const char* name, const std::string& otherwise) const { return text(name).value_or(otherwise); }

  /// A number from `least` to `most`; nothing if it is not set.
  std::optional<int> number(const char* name, int least, int most) const;
  int number_or(const char* name, int least, int most, int otherwise) const;
  int required(const char* name, int least, int most) const;
  /// A rank below `size`, which is the value of `size_name`.
  int required_below(const char* name, int size, const char* size_name) const;

  [[noreturn]] void refuse(const char* name, const std::string& reason) const;

 private:
  Lookup lookup_;
  std::string launcher_;
};

}  // namespace shoal
