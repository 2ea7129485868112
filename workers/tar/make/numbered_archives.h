// Archives that a writer's pattern names by their numbers: "train-%06d.tar".
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shoal::detail {

/// What stands before and behind the number of a pattern, and how many digits it has at least.
struct NumberedName {
  std::string before, behind;
  std::size_t digits = 0;

  std::string name(std::size_t number) const;
};
/// Nothing for a pattern without a number: neither %d nor %06d.
std::optional<NumberedName> numbered_name(const std::string& pattern);

/// The files that are there by such a name with any number, in the order of the numbers.
std::vector<std::filesystem::path> archives_there(const NumberedName& name);

/// "2 archives, a-0.tar and a-1.tar", "5 archives, a-0.tar to a-4.tar".
std::string listed(std::span<const std::filesystem::path> archives);

/// Removes those of `there` that are not among `kept`, each with the index beside it, and says which in the log. Throws
/// DatasetError for one that cannot be removed.
void remove_others(const std::vector<std::filesystem::path>& there, const std::vector<std::filesystem::path>& kept);

}  // namespace shoal::detail
