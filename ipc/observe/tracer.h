// The tracer of a session: turns tracing on, collects what all processes write, turns it off.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/ipc/observe/session_file.h>
#include <shoal/internal/ipc/process/trace_switch.h>
#include <shoal/internal/ipc/trace/buffer.h>
#include <shoal/ipc/heap.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace shoal {

/// A process that events came from.
struct TracedProcess {
  pid_t pid = 0;
  std::string name;
  std::uint64_t lost = 0;  // events for which there was no room
};

/// Traces the session that this process is part of (see join_as_observer). One thread. There is one tracer a session:
/// it is on from the constructor to the destructor, as long as drain() is called every kRenewEvery. If this process
/// dies, or is stopped for longer than kLasts, tracing ends by itself; what the others wrote for it is given back when
/// they sleep next. If a traced process dies, what it wrote stays until it is drained.
class Tracer {
 public:
  static constexpr std::uint64_t kLasts = 1'000'000'000;  // nanoseconds
  using Visit = std::function<void(const TracedProcess& process, const TraceRecord& record)>;

  /// Throws Error naming the process that traces already.
  Tracer();
  Tracer(const Tracer&) = delete;
  ~Tracer();

  /// Visits all events that are there, those of a process in the order in which they ended, and says that the tracer
  /// goes on. False if tracing has ended meanwhile, because this process was late.
  bool drain(const Visit& visit);
  /// Turns tracing off and visits what was written up to then.
  void finish(const Visit& visit);

  /// The processes that events came from, also dead ones.
  std::vector<TracedProcess> processes() const;
  /// What a thread waits for that sleeps on this word: "get batches".
  std::string name_of_wait(std::uint64_t word) const;

 private:
  struct Source {
    HoldRef hold;  // this process's
    std::uint32_t owner;
    TracedProcess process;
  };
  bool renew();
  void turn_off() noexcept;
  void look_for_sources();
  void add_source(BlockOffset block);
  void drain(Source& source, const Visit& visit);
  bool is_over(const Source& source) const;
  void drop_all() noexcept;

  SessionFile file_;
  std::uint64_t word_ = 0;  // what it has written last
  std::map<std::uint64_t, Source> sources_;
  std::vector<TracedProcess> ended_;
};

/// Makes this process part of the session of another process of the same user, whether that listens or not, through the
/// descriptors in /proc/PID/fd. Otherwise like Session::attach.
void join_as_observer(pid_t process, const std::string& name);

}  // namespace shoal
