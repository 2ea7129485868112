// How the benchmark of collectives measures an implementation: the same loop for shoal and the peers in C++.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/collectives/cases.h"
#include "bench/report/report.h"

namespace shoal::bench {

/// One rank of one implementation.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// Memory for data, as the implementation is to be measured with. Gone with the next forget().
  virtual std::span<float> memory(std::size_t floats) = 0;
  virtual void forget() = 0;

  virtual void all_reduce(std::span<float> data) = 0;
  virtual void all_gather(std::span<float> input, std::span<float> output) = 0;
  virtual void reduce_scatter(std::span<float> input, std::span<float> output) = 0;
  virtual void all_to_all(std::span<float> input, std::span<float> output) = 0;
  virtual void broadcast(std::span<float> data, int root) = 0;
  virtual void barrier() = 0;
  virtual void send(std::span<float> data, int to) = 0;
  virtual void recv(std::span<float> data, int from) = 0;
};

/// Checks the result of the case once, against what each element has to be; throws std::runtime_error. Then times it for
/// about `seconds`, and returns what each call took, in us:
/// - where no rank can leave before all have come, as rank 0 sees it, call after call;
/// - of broadcast the slowest rank's time after a barrier: the root would run ahead;
/// - of send and recv half a round trip between ranks 0 and 1, beside those of 2 and 3, 4 and 5, ...
/// Only rank 0's samples mean anything.
std::vector<double> measure(Collectives& collectives, const CollectiveCase& what, double seconds);

/// p50, p99 and mean.
std::vector<Figure> figures_of(const std::string& impl, const std::string& case_name, std::vector<double> samples);

/// What a peer's program does: `arguments` are its impl's name, what to add to the cases' names, seconds, and cases.
/// Prints a JSON line for each figure.
int answer_collectives(Collectives& collectives, int argc, char** argv);

}  // namespace shoal::bench
