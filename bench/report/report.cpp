#include "bench/report/report.h"

#include <fmt/format.h>
#include <stdio.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

namespace shoal::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

bool more_is_better(const std::string& unit) { return unit.ends_with("/s"); }

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

}  // namespace

Report::Report(std::string bench) : bench_(std::move(bench)) {
  utsname system{};
  ::uname(&system);
  fmt::print("# {}: {}, {} CPUs, Linux {}, commit {}, {} build\n", bench_, cpu_model(),
             std::thread::hardware_concurrency(), system.release, SHOAL_BENCH_COMMIT, SHOAL_BENCH_BUILD_TYPE);
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

void Report::add(Figure figure) {
  nlohmann::ordered_json line;
  line["bench"] = bench_;
  line["impl"] = figure.impl;
  line["case"] = figure.case_name;
  line["metric"] = figure.metric;
  line["value"] = figure.value;
  line["unit"] = figure.unit;
  line["min"] = figure.min;
  line["max"] = figure.max;
  line["n"] = figure.n;
  fmt::print("{}\n", line.dump());
  ::fflush(stdout);
  figures_.push_back(std::move(figure));
}

void Report::run_peer(const std::string& script, const std::vector<std::string>& arguments) {
  std::string command =
      quoted(SHOAL_BENCH_PYTHON) + " " + quoted(std::string(SHOAL_BENCH_PEERS) + "/" + script + ".py");
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) {
    fmt::print("# peer {} could not be started\n", script);
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
  if (int status = ::pclose(pipe); status != 0) fmt::print("# peer {} ended with status {}\n", script, status);
}

Report::~Report() {
  // The ratio says how much better shoal is than the row: above 1 where shoal is ahead.
  std::map<std::string, const Figure*> ours;
  for (const Figure& figure : figures_)
    if (figure.impl.starts_with("shoal")) ours.emplace(figure.case_name + figure.unit + figure.metric, &figure);
  std::vector<std::string> cases;
  for (const Figure& figure : figures_)
    if (std::find(cases.begin(), cases.end(), figure.case_name) == cases.end()) cases.push_back(figure.case_name);
  fmt::print("\n{:36} {:34} {:>12} {:>12} {:>12} {:6} {:>10}\n", "case", "implementation", "median", "min", "max",
             "unit", "shoal is");
  for (const std::string& name : cases)
    for (const Figure& figure : figures_) {
      if (figure.case_name != name) continue;
      auto found = ours.find(figure.case_name + figure.unit + figure.metric);
      std::string ratio;
      if (found != ours.end() && found->second != &figure) {
        double times = figure.value / found->second->value;
        ratio = fmt::format("{:.2f} x", more_is_better(figure.unit) ? 1 / times : times);
      }
      std::string impl = figure.metric == "median" ? figure.impl : figure.impl + " " + figure.metric;
      fmt::print("{:36} {:34} {:12.4g} {:12.4g} {:12.4g} {:6} {:>10}\n", figure.case_name, impl, figure.value,
                 figure.min, figure.max, figure.unit, ratio);
    }
  ::fflush(stdout);
}

}  // namespace shoal::bench
