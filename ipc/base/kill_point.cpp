#include <shoal/internal/ipc/base/kill_point.h>

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace shoal {
namespace kill_points {

std::atomic<bool> armed{false};

namespace {

char armed_label[64];
std::atomic<int> passes_left{0};
int armed_signal = SIGKILL;

char delayed_label[64];
PointDelays delays;
std::atomic<std::uint64_t> passes{0};
std::atomic<unsigned long> stops{0};

template <std::size_t N>
void keep(char (&place)[N], const char* label) {
  const std::string_view text = std::string_view(label).substr(0, N - 1);
  place[text.copy(place, text.size())] = '\0';
}

/// What SHOAL_KILL_AT and SHOAL_DELAY_AT say, a field at a time.
std::string next_field(std::string& setting) {
  const auto colon = setting.find(':');
  std::string field = setting.substr(0, colon);
  setting = colon == std::string::npos ? "" : setting.substr(colon + 1);
  return field;
}

void next_number(std::string& setting, unsigned& number) {
  if (std::string field = next_field(setting); !field.empty())
    number = unsigned(std::strtoul(field.c_str(), nullptr, 10));
}

const bool from_environment = [] {
  if (const char* set = std::getenv("SHOAL_KILL_AT")) {
    std::string setting = set;
    const std::string label = next_field(setting);
    kill_at(label.c_str(), std::atoi(setting.c_str()));
  }
  if (const char* set = std::getenv("SHOAL_DELAY_AT")) {
    std::string setting = set;
    const std::string label = next_field(setting);
    PointDelays wanted;
    next_number(setting, wanted.mean);
    next_number(setting, wanted.one_in);
    next_number(setting, wanted.seed);
    delay_at(label.c_str(), wanted);
  }
  return true;
}();

/// Whether the point is the wanted one, or one of its group.
bool is_wanted(std::string_view wanted, std::string_view label) {
  if (wanted.empty() || wanted.back() != '*') return label == wanted;
  return label.starts_with(wanted.substr(0, wanted.size() - 1));
}

/// splitmix64 (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

/// A Pareto distribution of shape 1.5: its mean is three times its least value, and one draw in 1,000 is a hundred
/// times that. The races that are looked for need a stop that outlasts others' work, now and then.
void delay() noexcept {
  // relaxed: a number that no other pass of this process draws with, and nothing else.
  const std::uint64_t pass = passes.fetch_add(1, std::memory_order_relaxed);
  // The pid tells forked processes apart.
  const std::uint64_t drawn = mix(mix(std::uint64_t(delays.seed) << 32 | std::uint32_t(::getpid())) + pass);
  if (drawn % std::max(delays.one_in, 1u) != 0) return;
  constexpr double kLongest = 20'000'000;  // ns
  const double uniform = double((mix(drawn) >> 11) + 1) * 0x1p-53;
  const double length = std::min(delays.mean * 1000.0 / 3 * std::pow(uniform, -1 / 1.5), kLongest);
  stops.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count and nothing else
  // A kill point may lie between a system call and the look at its errno.
  const int error = errno;
  const timespec time{.tv_sec = 0, .tv_nsec = long(length)};
  ::nanosleep(&time, nullptr);  // shorter if a signal comes: as good a random length
  errno = error;
}

}  // namespace

void pass(const char* label) noexcept {
  if (is_wanted(delayed_label, label)) delay();
  if (!is_wanted(armed_label, label)) return;
  if (passes_left.fetch_sub(1, std::memory_order_relaxed) != 0) return;  // relaxed: a count and nothing else
  ::kill(::getpid(), armed_signal);
}

unsigned long delays_made() noexcept { return stops.load(std::memory_order_relaxed); }  // relaxed: for a figure

}  // namespace kill_points

namespace {

void arm(const char* label, int skip, int signal) {
  kill_points::keep(kill_points::armed_label, label);
  kill_points::passes_left = skip;
  kill_points::armed_signal = signal;
  kill_points::armed = true;
}

}  // namespace

void kill_at(const char* label, int skip) { arm(label, skip, SIGKILL); }

void stop_at(const char* label, int skip) { arm(label, skip, SIGSTOP); }

void delay_at(const char* label, const PointDelays& delays) {
  kill_points::delays = delays;
  kill_points::keep(kill_points::delayed_label, label);
  kill_points::armed = true;
}

}  // namespace shoal
