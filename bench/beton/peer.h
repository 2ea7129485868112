// A peer that stays: it is asked by lines of JSON and answers by lines, so that it and shoal can take turns.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shoal::bench {

/// A process with pipes for its input and output. Ended with its input by the destructor. One thread.
class Peer {
 public:
  /// `command`: its words.
  explicit Peer(const std::vector<std::string>& command);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer();

  pid_t pid() const { return pid_; }
  /// What it answers; nothing (null) if it cannot, which it has said on stderr, or has ended.
  nlohmann::json ask(const nlohmann::json& question);

 private:
  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

}  // namespace shoal::bench
