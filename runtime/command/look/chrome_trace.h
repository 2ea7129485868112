// Events as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing show.
#pragma once

#include <shoal/internal/ipc/observe/tracer.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace shoal::command {

/// Collects events and writes them as JSON, "Trace Event Format": a line for each thread of each process on one time
/// line (CLOCK_MONOTONIC), complete events only, and an arrow from each put to its get and from each start to what was
/// started, if both are there. One thread.
class ChromeTrace {
 public:
  static constexpr std::size_t kMostEvents = 20'000'000;

  /// `name_of_wait` says what a word is; asked once for each.
  explicit ChromeTrace(std::function<std::string(std::uint64_t word)> name_of_wait)
      : name_of_wait_(std::move(name_of_wait)) {}

  void add(const TracedProcess& process, const TraceRecord& record);
  /// A thread that waits still.
  void add_open_wait(pid_t pid, std::uint32_t thread, const std::string& what, std::uint64_t since, std::uint64_t now);

  std::size_t events() const { return events_.size(); }
  std::uint64_t dropped() const { return dropped_; }  // that were too many
  /// False if it could not be written; errno says why.
  bool write(std::FILE* to, const std::vector<TracedProcess>& processes) const;

 private:
  struct Event {
    pid_t pid;
    TraceRecord record;
  };
  const std::string& wait_name(std::uint64_t word);

  std::function<std::string(std::uint64_t)> name_of_wait_;
  std::vector<Event> events_;
  std::unordered_map<std::uint64_t, std::string> wait_names_;
  std::uint64_t dropped_ = 0;
};

/// As it stands between the quotes of a JSON string. What is not UTF-8 becomes '?'.
std::string json_escaped(const std::string& text);

}  // namespace shoal::command
