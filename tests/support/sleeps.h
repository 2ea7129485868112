// How often a process of a test has slept.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/support/forked.h"

namespace shoal::test {

/// Times that its first thread gave up its CPU to sleep. Throws where the process has gone.
inline long sleeps_of(const Forked& process) {
  std::ifstream file("/proc/" + std::to_string(process.pid()) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("voluntary_ctxt_switches:")) return std::stol(line.substr(line.find(':') + 1));
  throw std::runtime_error("no count of switches");
}

}  // namespace shoal::test
