// One run: the ranks of a mode, seen from the parent.
#pragma once

#include <cstdint>
#include <exception>

#include "train_fashion_mnist/data.h"
#include "train_fashion_mnist/results.h"
#include "train_fashion_mnist/settings.h"

/// The user pressed Ctrl-C, or somebody sent SIGTERM, and the ranks have ended.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal) : signal_(signal) {}
  const char* what() const noexcept override { return "interrupted"; }
  int signal() const noexcept { return signal_; }

 private:
  int signal_;
};

/// From now on Ctrl-C and SIGTERM are noticed by run(), which has the ranks stop in order.
void catch_interrupts();

/// Throws std::invalid_argument for what could only fail later, perhaps after a run that succeeds.
void check_runs(const Settings& settings);

/// What a run shows while it goes on: in a sweep the table is all.
enum class Show : std::uint8_t { progress, nothing };

/// Throws what the ranks throw, and Interrupted.
RunResult run(Mode mode, const Settings& settings, const Data& data, Show show);
