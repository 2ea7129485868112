#include "train_fashion_mnist/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

RunResult make_result(Mode mode, const Settings& settings, const std::vector<Metrics>& ranks, double seconds) {
  const Metrics& first = ranks.front();
  const int nprocs = mode == Mode::single ? 1 : settings.nprocs;
  const int cpus = int(std::thread::hardware_concurrency());
  RunResult result{.mode = name_of(mode),
                   .nprocs = nprocs,
                   .threads = mode == Mode::data_parallel ? 1 : std::max(1, cpus / nprocs),
                   .seconds = seconds,
                   .samples_per_second = 0,
                   .loss = first.loss,
                   .test_accuracy = 0,
                   .profile = first.profile};
  if (!first.confusion.defined()) return result;
  double slowest = 0;
  std::int64_t samples = 0;
  for (const Metrics& rank : ranks) {
    slowest = std::max(slowest, rank.seconds);
    samples += rank.samples;
  }
  result.samples_per_second = slowest > 0 ? double(samples) / slowest : 0;
  result.test_accuracy = first.confusion.trace().item<double>() / first.confusion.sum().item<double>();
  return result;
}

void print_results(const std::vector<RunResult>& results) {
  if (!results.front().profile.empty()) {
    for (const RunResult& result : results)
      fmt::print("\n{}, rank 0 of {}\n{}", result.mode, result.mode == "data_parallel" ? 1 : result.nprocs,
                 result.profile);
    return;
  }
  const double single = results.front().mode == "single" ? results.front().samples_per_second : 0;
  fmt::print("\n{:13} {:>9} {:>8} {:>9} {:>11} {:>9} {:>8} {:>14}\n", "run", "processes", "threads", "seconds",
             "samples/s", "speed-up", "loss", "test accuracy");
  auto json = nlohmann::ordered_json::array();
  for (const RunResult& result : results) {
    const bool compared = single > 0 && result.samples_per_second > 0;
    const double speed_up = compared ? result.samples_per_second / single : 0;
    fmt::print("{:13} {:9} {:8} {:9.1f} {:11.0f} {:>9} {:8.4f} {:14.4f}\n", result.mode, result.nprocs, result.threads,
               result.seconds, result.samples_per_second, compared ? fmt::format("{:.2f}", speed_up) : "-", result.loss,
               result.test_accuracy);
    nlohmann::ordered_json row;
    row["mode"] = result.mode;
    row["nprocs"] = result.nprocs;
    row["threads"] = result.threads;
    row["seconds"] = result.seconds;
    row["samples_per_second"] = result.samples_per_second;
    if (compared) row["speed_up"] = speed_up;
    row["loss"] = result.loss;
    row["test_accuracy"] = result.test_accuracy;
    json.push_back(row);
  }
  fmt::print("{}\n", nlohmann::ordered_json{{"runs", json}}.dump());
}
