// What every benchmark prints: one JSON line a figure, and a table at the end.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace shoal::bench {

/// One measured quantity of one implementation in one case.
struct Figure {
  std::string impl;       // "shoal", "torch.multiprocessing file_system", "memcpy"
  std::string case_name;  // what was done, the same text for all that did it
  std::string metric;     // "p50", "median", "rate"
  std::string unit;       // "us", "ms", "GB/s", "1/s"
  double value, min, max;
  std::size_t n;  // samples behind it
};

/// Collects the figures of one benchmark program and prints them: JSON lines as they come, the machine
/// and a warning for an unoptimized build first, the table with the ratio of each figure to shoal's of
/// its case last. One a program, one thread.
class Report {
 public:
  explicit Report(std::string bench);
  ~Report();

  /// Median, minimum and maximum of samples (of which there is at least one).
  void add(const std::string& impl, const std::string& case_name, const std::string& unit, std::vector<double> samples);
  /// The given quantile instead of the median, named "p50", "p99", ...
  void add_quantile(const std::string& impl, const std::string& case_name, const std::string& unit,
                    const std::vector<double>& samples, int percent);
  void add(Figure figure);

  /// Runs bench/peers/SCRIPT.py with the project's Python and takes over the JSON lines it prints. Says so
  /// where it cannot: a peer that is missing is no reason to measure nothing.
  void run_peer(const std::string& script, const std::vector<std::string>& arguments = {});

 private:
  std::string bench_;
  std::vector<Figure> figures_;
};

/// Seconds that the call took.
template <class F>
double seconds(F&& call) {
  auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace shoal::bench
