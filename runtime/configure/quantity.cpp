#include <shoal/internal/runtime/configure/quantity.h>

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace shoal::config {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t size;
};
constexpr std::array<Unit, 8> kTimes = {{{"d", 86'400'000'000'000},
                                         {"h", 3'600'000'000'000},
                                         {"min", 60'000'000'000},
                                         {"m", 60'000'000'000},
                                         {"s", 1'000'000'000},
                                         {"ms", 1'000'000},
                                         {"us", 1'000},
                                         {"ns", 1}}};
constexpr std::array<Unit, 10> kBytes = {{{"TiB", 1LL << 40},
                                          {"GiB", 1LL << 30},
                                          {"MiB", 1LL << 20},
                                          {"KiB", 1LL << 10},
                                          {"TB", 1'000'000'000'000},
                                          {"GB", 1'000'000'000},
                                          {"MB", 1'000'000},
                                          {"kB", 1'000},
                                          {"KB", 1'000},
                                          {"B", 1}}};

constexpr Nanoseconds kMost = Nanoseconds(std::numeric_limits<std::int64_t>::max()) * 86'400'000'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <std::size_t N>
const Unit* find_unit(const std::array<Unit, N>& units, std::string_view name) {
  for (const Unit& unit : units)
    if (unit.name == name) return &unit;
  return nullptr;
}

/// Takes "12.5" and a unit from the front of `text`, and adds them to `result` exactly.
template <std::size_t N>
bool take(std::string_view& text, const std::array<Unit, N>& units, Nanoseconds& result) {
  Nanoseconds number = 0, scale = 1;
  std::size_t digits = 0, i = 0;
  bool fraction = false;
  for (; i < text.size() && (is_digit(text[i]) || (text[i] == '.' && !fraction)); ++i) {
    if (text[i] == '.') {
      fraction = true;
      continue;
    }
    if (++digits > 30) return false;
    number = number * 10 + (text[i] - '0');
    if (fraction) scale *= 10;
  }
  if (digits == 0 || number > kMost / 1'000'000'000) return false;
  text.remove_prefix(i);
  std::size_t letters = 0;
  while (letters < text.size() && !is_digit(text[letters]) && text[letters] != '.') ++letters;
  const Unit* unit = find_unit(units, text.substr(0, letters));
  if (!unit) return false;
  text.remove_prefix(letters);
  while (scale % 10 == 0 && number % 10 == 0 && scale > 1) {
    number /= 10;
    scale /= 10;
  }
  if (scale > 1'000'000'000'000'000 || number > kMost / unit->size) return false;
  const Nanoseconds all = number * unit->size;
  if (all % scale != 0) return false;
  result += all / scale;
  return result <= kMost;
}

std::string whole_text(Nanoseconds number) {
  if (number == 0) return "0";
  std::string text;
  const bool negative = number < 0;
  for (; number != 0; number /= 10) text.insert(text.begin(), char('0' + int(negative ? -(number % 10) : number % 10)));
  return negative ? "-" + text : text;
}

}  // namespace

bool parse_duration(std::string_view text, Nanoseconds& result) {
  result = 0;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return true;
  if (text.empty()) return false;
  while (!text.empty())
    if (!take(text, kTimes, result)) return false;
  if (negative) result = -result;
  return true;
}

std::string duration_text(Nanoseconds nanoseconds) {
  if (nanoseconds == 0) return "0s";
  for (const Unit& unit : kTimes)
    if (nanoseconds % unit.size == 0 && unit.name != "d" && unit.name != "m")
      return whole_text(nanoseconds / unit.size) + std::string(unit.name);
  return {};
}

std::string_view unit_name(std::int64_t nanoseconds) {
  for (const Unit& unit : kTimes)
    if (unit.size == nanoseconds) return unit.name;
  return {};
}

bool parse_real_duration(std::string_view text, std::int64_t unit, double& result) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end != text.data()) {
    const std::string_view name(end, std::size_t(text.data() + text.size() - end));
    if (const Unit* written = find_unit(kTimes, name)) {
      result = written->size == unit ? number : number * (double(written->size) / double(unit));
      return true;
    }
  }
  Nanoseconds whole = 0;
  if (!parse_duration(text, whole)) return false;
  result = double(whole) / double(unit);
  return true;
}

bool parse_bytes(std::string_view text, std::uint64_t& result) {
  Nanoseconds bytes = 0;
  std::string with_unit(text);
  if (!text.empty() && is_digit(text.back())) with_unit += 'B';
  std::string_view rest = with_unit;
  if (!take(rest, kBytes, bytes) || !rest.empty() || bytes > Nanoseconds(std::numeric_limits<std::uint64_t>::max()))
    return false;
  result = std::uint64_t(bytes);
  return true;
}

std::string bytes_text(std::uint64_t bytes) {
  for (const Unit& unit : kBytes)
    if (unit.name.ends_with("iB") && bytes != 0 && bytes % std::uint64_t(unit.size) == 0)
      return fmt::format("{}{}", bytes / std::uint64_t(unit.size), unit.name);
  return fmt::format("{}", bytes);
}

}  // namespace shoal::config
