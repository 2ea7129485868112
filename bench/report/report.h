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

/// The figure as one JSON line, without its end.
std::string json_line(const std::string& bench, const Figure& figure);

/// Collects the figures of one benchmark program and prints them: JSON lines as they come, the machine
/// and a warning for an unoptimized build first, the table with the ratio of each figure to shoal's of
/// its case last, and a table of what is asked of shoal and what it got. One a program, one thread.
class Report {
 public:
  explicit Report(std::string bench);
  ~Report();

  /// Median, minimum and maximum of samples (of which there is at least one).
  void add(const std::string& impl, const std::string& case_name, const std::string& unit, std::vector<double> samples);
  /// The given quantile instead of the median, named "p50", "p99", ...
  void add_quantile(const std::string& impl, const std::string& case_name, const std::string& unit,
                    const std::vector<double>& samples, int percent);
  /// Their sum by their number: what a program that does many of them waits on the whole.
  void add_mean(const std::string& impl, const std::string& case_name, const std::string& unit,
                const std::vector<double>& samples);
  void add(Figure figure);

  /// What shoal's figure of this case and metric has to be: at least `times` as good as that of the implementation
  /// whose name starts with `against`, the best of them if there are several (0.9: a tenth worse is still right).
  void ask(const std::string& case_name, const std::string& metric, const std::string& against, double times);
  /// The same of the figure of `impl`, one of shoal's, against the best of all that is not shoal's.
  void ask_against_peers(const std::string& impl, const std::string& case_name, const std::string& metric,
                         double times);
  /// The same against shoal's own figure of another case.
  void ask_of_case(const std::string& case_name, const std::string& metric, const std::string& other, double times);
  /// The same against a value in the figure's unit: at most that, or for rates and "times" at least.
  void ask_value(const std::string& case_name, const std::string& metric, double value);

  /// Runs the peer of this name that was built from a source below bench/peers/, and takes over the JSON lines it prints.
  /// Says so where it is missing, because what it needs (`package`) was not there when this was configured.
  /// `launcher`: the words of a command that is to start it.
  void run_program(const std::string& name, const std::vector<std::string>& arguments, const std::string& package = "",
                   const std::vector<std::string>& launcher = {});
  /// Runs bench/peers/SCRIPT.py ("ipc/heap") with the project's Python and takes over the JSON lines it prints. Says so
  /// where it cannot: a peer that is missing is no reason to measure nothing.
  void run_peer(const std::string& script, const std::vector<std::string>& arguments = {});

 private:
  struct Asked {
    std::string case_name, metric;
    std::string impl, other_case;  // one of the two, or neither
    double least;                  // how much better than that, or the value
    std::string ours = {};         // which of shoal's; empty: the first
  };
  void run(const std::string& name, const std::string& command);
  void print_figures() const;
  void print_asked() const;
  const Figure* ours(const std::string& case_name, const std::string& metric, const std::string& impl = "") const;

  std::string bench_;
  std::vector<Figure> figures_;
  std::vector<Asked> asked_;
};

/// Seconds that the call took.
template <class F>
double seconds(F&& call) {
  auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace shoal::bench
