#include <shoal/internal/runtime/environment/variables.h>

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

namespace shoal {

std::optional<std::string> Variables::text(const char* name) const {
  const char* value = lookup_(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

void Variables::refuse(const char* name, const std::string& reason) const {
  const auto value = text(name);
  throw std::invalid_argument(
      fmt::format("{} {}: {}. {} sets it; where nobody does, unset it, or set all that belong together",
                  value ? fmt::format("{}={}", name, *value) : name, value ? "in the environment" : "is not set",
                  reason, launcher_));
}

std::optional<int> Variables::number(const char* name, int least, int most) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  int number = 0;
  const char* end = value->data() + value->size();
  const auto [stopped, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || stopped != end || number < least || number > most)
    refuse(name, fmt::format("a whole number from {} to {} is needed", least, most));
  return number;
}

int Variables::number_or(const char* name, int least, int most, int otherwise) const {
  return number(name, least, most).value_or(otherwise);
}

int Variables::required(const char* name, int least, int most) const {
  if (const auto value = number(name, least, most)) return *value;
  refuse(name, "others that belong to it are set");
}

int Variables::required_below(const char* name, int size, const char* size_name) const {
  const int value = required(name, 0, kMostRanks);
  if (value >= size) refuse(name, fmt::format("it has to be less than {}={}", size_name, size));
  return value;
}

}  // namespace shoal
