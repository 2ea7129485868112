// Makes libtorch's random numbers depend on the batch that is being read.
#pragma once

#include <shoal/workers/data/sample_random.h>

#include <memory>

namespace shoal::detail {

/// While such an object lives, libtorch's CPU generator gives numbers that depend on the batch (its seed, epoch and
/// first index), whichever process makes it. Not together with other threads that use the generator.
class SeededGenerator {
 public:
  /// Whether it goes on afterwards as if nothing had been drawn; a worker need not care.
  enum class Afterwards { kRestore, kLeave };
  SeededGenerator(const SampleKey& batch, Afterwards afterwards);
  SeededGenerator(const SeededGenerator&) = delete;
  ~SeededGenerator();

 private:
  struct State;
  std::unique_ptr<State> before_;
};

}  // namespace shoal::detail
