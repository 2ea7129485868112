#include <shoal/internal/runtime/sweep/plan.h>

#include <fmt/format.h>
#include <shoal/internal/runtime/configure/typed_value.h>
#include <shoal/runtime/config_error.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

namespace shoal::detail {
namespace {

constexpr std::size_t kMostRuns = 100'000;
constexpr std::size_t kLongestName = 120;

/// With what any file system takes.
std::string file_name(const std::string& text) {
  std::string name = text;
  for (char& c : name)
    if (!std::isalnum(std::uint8_t(c)) && std::string_view("=,.-_[]").find(c) == std::string_view::npos) c = '_';
  return name;
}

SweepAxis axis_of(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0)
    throw ConfigError(fmt::format("--sweep {}: write NAME=VALUE,VALUE...", argument));
  SweepAxis axis{argument.substr(0, equals), {}};
  try {
    axis.values = config::split_at_commas(argument.substr(equals + 1));
  } catch (const std::invalid_argument& fault) {
    throw ConfigError(fmt::format("--sweep {}: {}", argument, fault.what()));
  }
  return axis;
}

std::string value_of(const std::string& option, const std::vector<std::string>& arguments, std::size_t& i) {
  if (arguments[i].size() > option.size()) return arguments[i].substr(option.size() + 1);
  if (i + 1 == arguments.size()) throw ConfigError(fmt::format("{}: needs a value", option));
  return arguments[++i];
}

bool is_option(const std::string& argument, const std::string& option) {
  return argument == option || argument.starts_with(option + "=");
}

/// Of each name how many runs want it: those with equal values are numbered.
using TakenNames = std::map<std::string, int>;

/// The values, readable. Where they were cut or changed for that, with a sum of them as they are: the name of a run is the
/// same whatever other runs there are, so that a sweep which has grown finds it.
std::string name_of(const SweepRequest& request, const std::vector<std::string>& values, TakenNames& taken) {
  std::string exact;
  for (std::size_t i = 0; i < values.size(); ++i)
    exact += fmt::format("{}{}={}", i ? "," : "", request.axes[i].option, values[i]);
  std::string name = file_name(exact).substr(0, kLongestName);
  if (name != exact) name += fmt::format("+{:08x}", std::uint32_t(sum_of(exact)));
  if (const int number = ++taken[name]; number > 1) name += fmt::format("+{}", number);
  return name;
}

void check_axes(const SweepRequest& request) {
  if (request.is_sweep && request.axes.empty())
    throw ConfigError("--sweep: needs options and their values, as lr=0.1,0.01");
  for (std::size_t i = 0; i < request.axes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (request.axes[i].option == request.axes[j].option)
        throw ConfigError(fmt::format("--sweep: {} is there twice", request.axes[i].option));
}

}  // namespace

// FNV-1a (Fowler, Noll, Vo).
std::uint64_t sum_of(std::string_view text) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const char c : text) sum = (sum ^ std::uint8_t(c)) * 0x100000001b3;
  return sum;
}

SweepRequest sweep_over(const std::vector<std::string>& axes) {
  SweepRequest request;
  request.is_sweep = true;
  for (const std::string& axis : axes) request.axes.push_back(axis_of(axis));
  check_axes(request);
  return request;
}

SweepRequest take_sweep(const std::vector<std::string>& arguments) {
  SweepRequest request;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--sweep") {
      request.is_sweep = true;
      while (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"))
        request.axes.push_back(axis_of(arguments[++i]));
    } else if (is_option(arguments[i], "--sweep-folder")) {
      request.folder = value_of("--sweep-folder", arguments, i);
    } else if (is_option(arguments[i], "--sweep-processes")) {
      const std::string text = value_of("--sweep-processes", arguments, i);
      int count = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
      if (error != std::errc() || end != text.data() + text.size() || count < 1)
        throw ConfigError(fmt::format("--sweep-processes {}: must be an integer from 1 on", text));
      request.processes = count;
    } else {
      request.arguments.push_back(arguments[i]);
    }
  }
  check_axes(request);
  return request;
}

int say_fault(const std::string& program, const char* what) {
  fmt::print(stderr, "{}: {}\n", program, what);
  return 2;
}

std::vector<std::pair<std::string, std::string>> sweep_options() {
  return {{"--sweep NAME=VALUE,VALUE...",
           "run all combinations of these values, in worker processes; started again, those that are left"},
          {"--sweep-folder FOLDER", "where each run has a folder with its settings and its result"},
          {"--sweep-processes N", "how many run at once"}};
}

std::vector<SweepRun> plan_sweep(const SweepRequest& request,
                                 const std::function<std::string(const std::vector<std::string>&)>& resolve) {
  std::size_t count = 1;
  for (const SweepAxis& axis : request.axes) {
    count *= axis.values.size();
    if (count > kMostRuns) throw ConfigError(fmt::format("--sweep: that is more than {} runs", kMostRuns));
  }
  std::vector<SweepRun> runs;
  TakenNames taken;
  for (std::size_t number = 0; number < count; ++number) {
    SweepRun run;
    std::size_t rest = number;
    for (std::size_t axis = request.axes.size(); axis-- > 0;) {
      const std::vector<std::string>& values = request.axes[axis].values;
      run.values.insert(run.values.begin(), values[rest % values.size()]);
      rest /= values.size();
    }
    std::vector<std::string> arguments = request.arguments;
    for (std::size_t axis = 0; axis < run.values.size(); ++axis)
      arguments.push_back(request.axes[axis].option + "=" + run.values[axis]);
    run.config = resolve(arguments);
    run.name = name_of(request, run.values, taken);
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace shoal::detail
