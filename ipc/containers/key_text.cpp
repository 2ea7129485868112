#include <shoal/internal/ipc/containers/key_text.h>

#include <shoal/ipc/codec.h>

#include <string>
#include <utility>
#include <vector>

namespace shoal {
namespace {

constexpr std::size_t kMostShown = 60;

/// "an int"; with the schema alone for what has no usual name.
std::string type_of(std::uint64_t schema) {
  static constexpr std::pair<std::uint64_t, std::string_view> kUsual[] = {
      {schema_of<bool>(), "a bool"},
      {schema_of<int>(), "an int"},
      {schema_of<long>(), "a long"},
      {schema_of<unsigned>(), "an unsigned"},
      {schema_of<unsigned long>(), "an unsigned long"},
      {schema_of<float>(), "a float"},
      {schema_of<double>(), "a double"},
      {schema_of<std::string>(), "a std::string"},
      {schema_of<std::vector<int>>(), "a std::vector<int>"},
      {schema_of<std::vector<long>>(), "a std::vector<long>"},
      {schema_of<std::vector<float>>(), "a std::vector<float>"},
      {schema_of<std::vector<double>>(), "a std::vector<double>"},
      {schema_of<std::vector<std::string>>(), "a std::vector<std::string>"},
  };
  for (const auto& [usual, name] : kUsual)
    if (usual == schema) return std::string(name);
  return fmt::format("a type with schema {:016x}", schema);
}

}  // namespace

std::string quoted_key(std::string_view key) {
  return key.size() <= kMostShown ? fmt::format("'{}'", key) : fmt::format("'{}...'", key.substr(0, kMostShown));
}

std::string other_type_text(std::uint64_t set_as, std::uint64_t asked_for) {
  return fmt::format("it was set as {}, and is asked for as {}", type_of(set_as), type_of(asked_for));
}

}  // namespace shoal
