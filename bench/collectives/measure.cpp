#include "bench/collectives/measure.h"

#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace shoal::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Micros = std::chrono::duration<double, std::micro>;

/// Sums of these are exact.
float element(int rank, std::size_t i) { return float(std::size_t(rank + 1) * (i % 251 + 1)); }

float sum(int ranks, std::size_t i) { return float(std::size_t(ranks) * std::size_t(ranks + 1) / 2 * (i % 251 + 1)); }

/// The data of a case on one rank: what it is filled with, the call, and what has to come out.
class Run {
 public:
  Run(Collectives& collectives, const CollectiveCase& what)
      : collectives_(collectives),
        what_(what),
        me_(collectives.rank()),
        ranks_(collectives.ranks()),
        whole_(what.bytes / sizeof(float)),
        part_(what.part(ranks_)) {
    const bool gathers = what.operation == Operation::all_gather,
               scatters = what.operation == Operation::reduce_scatter;
    input_ = collectives.memory(gathers ? part_ : whole_);
    if (gathers || scatters || what.operation == Operation::all_to_all)
      output_ = collectives.memory(scatters ? part_ : whole_);
  }

  void fill(bool with_zeros) {
    for (std::size_t i = 0; i < input_.size(); ++i) input_[i] = with_zeros ? 0 : element(me_, i);
    std::fill(output_.begin(), output_.end(), 0.f);
  }

  void call() {
    switch (what_.operation) {
      case Operation::all_reduce:
        return collectives_.all_reduce(input_);
      case Operation::all_gather:
        return collectives_.all_gather(input_, output_);
      case Operation::reduce_scatter:
        return collectives_.reduce_scatter(input_, output_);
      case Operation::all_to_all:
        return collectives_.all_to_all(input_, output_);
      case Operation::broadcast:
        return collectives_.broadcast(input_, 0);
      case Operation::barrier:
        return collectives_.barrier();
      case Operation::send_recv:
        break;
    }
    const int other = me_ ^ 1;
    if (me_ < other) {
      collectives_.send(input_, other);
      collectives_.recv(input_, other);
    } else {
      collectives_.recv(input_, other);
      collectives_.send(input_, other);
    }
  }

  void check() const {
    const std::span<float> result = output_.empty() ? input_ : output_;
    for (std::size_t i = 0; i < result.size(); ++i)
      if (result[i] != expected(i))
        throw std::runtime_error(fmt::format("{}: rank {} has {} at {} where {} is right", what_.name(ranks_), me_,
                                             result[i], i, expected(i)));
  }

 private:
  float expected(std::size_t i) const {
    switch (what_.operation) {
      case Operation::all_reduce:
        return sum(ranks_, i);
      case Operation::all_gather:
        return element(int(i / part_), i % part_);
      case Operation::reduce_scatter:
        return sum(ranks_, std::size_t(me_) * part_ + i);
      case Operation::all_to_all:
        return element(int(i / part_), std::size_t(me_) * part_ + i % part_);
      case Operation::broadcast:
        return element(0, i);
      case Operation::barrier:
        return 0;
      case Operation::send_recv:
        return element(me_ & ~1, i);  // there and back: the asker's own
    }
    return 0;
  }

  Collectives& collectives_;
  CollectiveCase what_;
  int me_, ranks_;
  std::size_t whole_, part_;
  std::span<float> input_, output_;
};

/// Rank 0's number, on all.
int agree(Collectives& collectives, double number) {
  const std::span<float> one = collectives.memory(1);
  one[0] = float(std::round(number));
  collectives.broadcast(one, 0);
  return int(one[0]);
}

/// Of each call, the slowest rank's time.
void take_slowest(Collectives& collectives, std::vector<double>& samples) {
  const std::span<float> own = collectives.memory(samples.size());
  const std::span<float> all = collectives.memory(samples.size() * std::size_t(collectives.ranks()));
  std::copy(samples.begin(), samples.end(), own.begin());
  collectives.all_gather(own, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    double& sample = samples[i % samples.size()];
    sample = std::max(sample, double(all[i]));
  }
}

}  // namespace

std::vector<double> measure(Collectives& collectives, const CollectiveCase& what, double seconds) {
  constexpr int kFewest = 5, kMost = 20'000;
  Run run(collectives, what);
  run.fill(false);
  collectives.barrier();
  run.call();
  run.check();
  collectives.barrier();
  run.fill(true);  // their sums stay zeros
  collectives.barrier();

  const bool meets = what.operation == Operation::broadcast;
  auto took = [&](int calls) {
    std::vector<double> samples;
    samples.reserve(std::size_t(calls));
    for (int i = 0; i < calls; ++i) {
      if (meets) collectives.barrier();
      const auto start = Clock::now();
      run.call();
      samples.push_back(Micros(Clock::now() - start).count());
    }
    return samples;
  };
  auto calls_in = [&](double part, std::vector<double> samples) {
    std::nth_element(samples.begin(), samples.begin() + std::ptrdiff_t(samples.size() / 2), samples.end());
    const double median = samples[samples.size() / 2] * (meets ? 3 : 1);
    return agree(collectives, std::clamp(part * seconds * 1e6 / std::max(median, 0.1), double(kFewest), double(kMost)));
  };
  const int warm_up = calls_in(0.1, took(3));
  // Where one waits for a CPU now and then, the mean is far from the median: a round of calls less often.
  constexpr int kRounds = 10;
  constexpr double kLongest = 4;  // times the seconds
  const int calls = calls_in(1, took(warm_up));
  std::vector<double> samples;
  const auto start = Clock::now();
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<double> more = took((calls + kRounds - 1) / kRounds);
    samples.insert(samples.end(), more.begin(), more.end());
    if (agree(collectives, std::chrono::duration<double>(Clock::now() - start).count() > kLongest * seconds)) break;
  }
  if (meets) take_slowest(collectives, samples);
  if (what.operation == Operation::send_recv)
    for (double& sample : samples) sample /= 2;
  collectives.barrier();
  collectives.forget();
  return samples;
}

std::vector<Figure> figures_of(const std::string& impl, const std::string& case_name, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto quantile = [&](std::size_t percent) {
    return samples[std::min(samples.size() - 1, samples.size() * percent / 100)];
  };
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / double(samples.size());
  std::vector<Figure> figures;
  for (const auto& [metric, value] : {std::pair{"p50", quantile(50)}, {"p99", quantile(99)}, {"mean", mean}})
    figures.push_back({impl, case_name, metric, "us", value, samples.front(), samples.back(), samples.size()});
  return figures;
}

int answer_collectives(Collectives& collectives, int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "say NAME SUFFIX SECONDS OPERATION:BYTES...\n");
    return 2;
  }
  try {
    for (int i = 4; i < argc; ++i) {
      const CollectiveCase what = case_of(argv[i]);
      const std::vector<double> samples = measure(collectives, what, std::atof(argv[3]));
      if (collectives.rank() != 0) continue;
      for (const Figure& figure : figures_of(argv[1], what.name(collectives.ranks()) + argv[2], samples))
        fmt::print("{}\n", json_line("collectives", figure));
      ::fflush(stdout);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "# {}: {}\n", argv[1], error.what());
    std::_Exit(1);  // the launcher ends the others, which wait for this one
  }
  return 0;
}

}  // namespace shoal::bench
