// A log of a training: a file of lines, each an object of JSON.
#pragma once

#include <shoal/ipc/fd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

/// Appends lines to a file; without a file it does nothing. Each line is one write() at the file's end, so processes may
/// share a file, and a process that is killed leaves whole lines. A training that goes on from a checkpoint appends to
/// what is there: lines may come twice, and of two for one step the later one counts.
class JsonLog {
 public:
  /// Throws shoal::SystemError if the file cannot be opened.
  explicit JsonLog(const std::filesystem::path& file);

  /// Numbers keep all their digits: read back they are the same.
  void add(const nlohmann::ordered_json& line);

 private:
  shoal::Fd file_;
};
