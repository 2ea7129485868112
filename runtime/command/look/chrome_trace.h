// Events as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing show.
#pragma once

#include <shoal/internal/ipc/observe/tracer.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace shoal::command {

/// Collects events and writes them as JSON, "Trace Event Format": a line for each thread of each process on one time
/// line (CLOCK_MONOTONIC), complete events only, and an arrow from each put to its get and from each start to what was
/// started, if both are there. One thread.
class ChromeTrace {
 public:
  static constexpr std::size_t kMostEvents = 20'000'000;

  using NameOfWait = std::function<std::string(std::uint64_t word)>;
  using NameOfThread = std::function<std::string(pid_t pid, std::uint32_t thread)>;
  /// Each asked once for each word and each thread, at its first event; an empty name is none.
  ChromeTrace(NameOfWait name_of_wait, NameOfThread name_of_thread)
      : name_of_wait_(std::move(name_of_wait)), name_of_thread_(std::move(name_of_thread)) {}

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
  void note_thread(pid_t pid, std::uint32_t thread);

  NameOfWait name_of_wait_;
  NameOfThread name_of_thread_;
  std::vector<Event> events_;
  std::unordered_map<std::uint64_t, std::string> wait_names_;
  std::map<std::pair<pid_t, std::uint32_t>, std::string> thread_names_;
  std::uint64_t dropped_ = 0;
};

}  // namespace shoal::command
