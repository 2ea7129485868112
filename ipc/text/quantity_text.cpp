#include <shoal/internal/ipc/text/quantity_text.h>

#include <fmt/format.h>

namespace shoal {
namespace {

struct Scaled {
  double number;
  char unit;  // ' ': none
};

/// In the largest unit of which it is one; what would be shown as 1000 or 1024 of one counts as one of the next.
Scaled scale(double number, double step, const char* units) {
  int unit = 0;
  while (number >= step * 0.9995 && units[unit + 1] != '\0') {
    number /= step;
    ++unit;
  }
  return {number, units[unit]};
}

std::string short_text(const Scaled& scaled) {
  if (scaled.unit == ' ') return fmt::format("{:.0f}", scaled.number);
  return fmt::format("{:.{}f}{}", scaled.number, scaled.number < 9.95 ? 1 : 0, scaled.unit);
}

constexpr const char* kBinary = " KMGTP";

}  // namespace

std::string short_bytes(std::uint64_t bytes) { return short_text(scale(double(bytes), 1024, kBinary)); }

std::string long_bytes(std::uint64_t bytes) {
  const Scaled scaled = scale(double(bytes), 1024, kBinary);
  return scaled.unit == ' ' ? fmt::format("{} bytes", bytes) : fmt::format("{:.2f} {}iB", scaled.number, scaled.unit);
}

std::string short_number(double number) {
  if (number > 0 && number < 9.95 && number != double(int(number))) return fmt::format("{:.1f}", number);
  return short_text(scale(number, 1000, " kMGT"));
}

}  // namespace shoal
