#include "bench/report/report.h"

#include <fmt/format.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "bench/report/line_round_trip.h"

namespace shoal::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

bool more_is_better(const std::string& unit) { return unit.ends_with("/s") || unit == "times"; }

std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

/// In place of an implementation's name.
constexpr const char* kAnyPeer = "any peer";

bool is_shoal(const Figure& figure) { return figure.impl.starts_with("shoal"); }

/// How many times as good `ours` is as `theirs`.
double times_as_good(const Figure& ours, double theirs) {
  return more_is_better(ours.unit) ? ours.value / theirs : theirs / ours.value;
}

}  // namespace

std::string json_line(const std::string& bench, const Figure& figure) {
  nlohmann::ordered_json line;
  line["bench"] = bench;
  line["impl"] = figure.impl;
  line["case"] = figure.case_name;
  line["metric"] = figure.metric;
  line["value"] = figure.value;
  line["unit"] = figure.unit;
  line["min"] = figure.min;
  line["max"] = figure.max;
  line["n"] = figure.n;
  return line.dump();
}

Report::Report(std::string bench) : bench_(std::move(bench)) {
  utsname system{};
  ::uname(&system);
  fmt::print("# {}: {}, {} CPUs, Linux {}, commit {}, {} build\n", bench_, cpu_model(),
             std::thread::hardware_concurrency(), system.release, SHOAL_BENCH_COMMIT, SHOAL_BENCH_BUILD_TYPE);
  if (const auto trip = line_round_trip())
    fmt::print("# a cache line takes {:.0f} ns from the first CPU to the last one and back\n", *trip);
#ifndef __OPTIMIZE__
  fmt::print("# WARNING: this build is not optimized: the figures mean nothing\n");
#endif
  ::fflush(stdout);
}

void Report::add(const std::string& impl, const std::string& case_name, const std::string& unit,
                 std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  add(Figure{impl, case_name, "median", unit, samples[samples.size() / 2], samples.front(), samples.back(),
             samples.size()});
}

void Report::add_quantile(const std::string& impl, const std::string& case_name, const std::string& unit,
                          const std::vector<double>& samples, int percent) {
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  std::size_t at = std::min(sorted.size() - 1, sorted.size() * std::size_t(percent) / 100);
  add(Figure{impl, case_name, fmt::format("p{}", percent), unit, sorted[at], sorted.front(), sorted.back(),
             sorted.size()});
}

void Report::add_mean(const std::string& impl, const std::string& case_name, const std::string& unit,
                      const std::vector<double>& samples) {
  const auto [least, most] = std::minmax_element(samples.begin(), samples.end());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / double(samples.size());
  add(Figure{impl, case_name, "mean", unit, mean, *least, *most, samples.size()});
}

void Report::add(Figure figure) {
  fmt::print("{}\n", json_line(bench_, figure));
  ::fflush(stdout);
  figures_.push_back(std::move(figure));
}

void Report::ask(const std::string& case_name, const std::string& metric, const std::string& against, double times) {
  asked_.push_back({case_name, metric, against, "", times});
}

void Report::ask_against_peers(const std::string& impl, const std::string& case_name, const std::string& metric,
                               double times) {
  asked_.push_back({case_name, metric, kAnyPeer, "", times, impl});
}

void Report::ask_of_case(const std::string& case_name, const std::string& metric, const std::string& other,
                         double times) {
  asked_.push_back({case_name, metric, "", other, times});
}

void Report::ask_value(const std::string& case_name, const std::string& metric, double value) {
  asked_.push_back({case_name, metric, "", "", value});
}

void Report::run_program(const std::string& name, const std::vector<std::string>& arguments, const std::string& package,
                         const std::vector<std::string>& launcher) {
  std::string path = std::string(SHOAL_BENCH_PEER_PROGRAMS) + "/" + name;
  if (::access(path.c_str(), X_OK) != 0) {
    fmt::print("# peer {} was not built: it needs the package {}\n", name, package);
    return;
  }
  std::string command;
  for (const std::string& word : launcher) command.append(shell_quoted(word)).append(" ");
  command += shell_quoted(path);
  for (const std::string& argument : arguments) command.append(" ").append(shell_quoted(argument));
  run(name, command);
}

void Report::run_peer(const std::string& script, const std::vector<std::string>& arguments) {
  std::string command =
      shell_quoted(SHOAL_BENCH_PYTHON) + " " + shell_quoted(std::string(SHOAL_BENCH_PEERS) + "/" + script + ".py");
  for (const std::string& argument : arguments) command.append(" ").append(shell_quoted(argument));
  run(script, command);
}

void Report::run(const std::string& name, const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) {
    fmt::print("# peer {} could not be started\n", name);
    return;
  }
  char* line = nullptr;
  std::size_t size = 0;
  while (::getline(&line, &size, pipe) > 0) {
    auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (parsed.is_discarded() || !parsed.is_object()) continue;
    add(Figure{parsed.at("impl"), parsed.at("case"), parsed.at("metric"), parsed.at("unit"), parsed.at("value"),
               parsed.at("min"), parsed.at("max"), parsed.at("n")});
  }
  ::free(line);
  if (int status = ::pclose(pipe); status != 0) fmt::print("# peer {} ended with status {}\n", name, status);
}

const Figure* Report::ours(const std::string& case_name, const std::string& metric, const std::string& impl) const {
  for (const Figure& figure : figures_)
    if (figure.case_name == case_name && figure.metric == metric && is_shoal(figure) &&
        (impl.empty() || figure.impl == impl))
      return &figure;
  return nullptr;
}

Report::~Report() {
  print_figures();
  print_asked();
  ::fflush(stdout);
}

void Report::print_figures() const {
  std::vector<std::string> cases;
  for (const Figure& figure : figures_)
    if (std::find(cases.begin(), cases.end(), figure.case_name) == cases.end()) cases.push_back(figure.case_name);
  // The ratio says how much better shoal is than the row: above 1 where shoal is ahead.
  fmt::print("\n{:44} {:42} {:>12} {:>12} {:>12} {:6} {:>10}\n", "case", "implementation", "median", "min", "max",
             "unit", "shoal is");
  for (const std::string& name : cases)
    for (const Figure& figure : figures_) {
      if (figure.case_name != name) continue;
      const Figure* ours = this->ours(figure.case_name, figure.metric);
      std::string ratio;
      if (ours && ours != &figure && ours->unit == figure.unit)
        ratio = fmt::format("{:.2f} x", times_as_good(*ours, figure.value));
      std::string impl = figure.metric == "median" ? figure.impl : figure.impl + " " + figure.metric;
      fmt::print("{:44} {:42} {:12.4g} {:12.4g} {:12.4g} {:6} {:>10}\n", figure.case_name, impl, figure.value,
                 figure.min, figure.max, figure.unit, ratio);
    }
}

void Report::print_asked() const {
  if (asked_.empty()) return;
  fmt::print("\n{:44} {:42} {:>12} {:>12} {:>6}\n", "asked of shoal", "against", "asked", "got", "");
  for (const Asked& asked : asked_) {
    const Figure* ours = this->ours(asked.case_name, asked.metric, asked.ours);
    if (!ours) continue;
    const std::string asked_of = asked.case_name + ", " + asked.metric + (asked.ours.empty() ? "" : ", " + asked.ours);
    const bool of_value = asked.impl.empty() && asked.other_case.empty();
    if (of_value) {
      const bool met = times_as_good(*ours, asked.least) >= 1;
      const char* sign = more_is_better(ours->unit) ? ">=" : "<=";
      fmt::print("{:44} {:42} {:>12} {:>12} {:>6}\n", asked_of, "",
                 fmt::format("{} {:.4g} {}", sign, asked.least, ours->unit),
                 fmt::format("{:.4g} {}", ours->value, ours->unit), met ? "met" : "MISSED");
      continue;
    }
    const Figure* best = nullptr;
    for (const Figure& figure : figures_) {
      bool wanted = false;
      if (asked.impl.empty())
        wanted = figure.case_name == asked.other_case && figure.impl == ours->impl;
      else if (asked.impl == kAnyPeer)
        wanted = figure.case_name == asked.case_name && !is_shoal(figure);
      else
        wanted = figure.case_name == asked.case_name && figure.impl.starts_with(asked.impl);
      if (!wanted || figure.metric != asked.metric || figure.unit != ours->unit) continue;
      if (!best || times_as_good(figure, best->value) > 1) best = &figure;
    }
    if (!best) continue;
    const double got = times_as_good(*ours, best->value);
    fmt::print("{:44} {:42} {:>12} {:>12} {:>6}\n", asked_of,
               asked.impl.empty() ? "shoal's " + asked.other_case : best->impl, fmt::format(">= {:.3g} x", asked.least),
               fmt::format("{:.3g} x", got), got >= asked.least ? "met" : "MISSED");
  }
}

}  // namespace shoal::bench
