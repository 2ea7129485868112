// One interface to the ways to start a process. A start method is a file of this folder, and a line of starter.cpp.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/runtime/call/channel.h>
#include <shoal/internal/runtime/call/task.h>
#include <shoal/internal/runtime/exec/exec_program.h>
#include <shoal/internal/runtime/start/child_settings.h>
#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/exit_status.h>

#include <memory>
#include <optional>

namespace shoal {

/// What a process is started from: what was asked for, what the child is told, the call, and the blocks with which it
/// finds its channel.
struct StartOrder {
  const ChildSettings& settings;
  const StartHeader& header;
  Task& task;
  const ChildBlocks& lent;
};

/// What was to start the process has died, and the start message may be gone with it: to be made again from the beginning.
class StartLost : public Error {
 public:
  using Error::Error;
};

/// Starts one process and tells of its end. Owned by its ChildProcess; one thread for the start, and one at a time for
/// the end. If this process dies, the one that was started dies too: each way sees to that.
///
/// A start has two steps, so that several may overlap: until the second is done nothing is given up here that the child
/// may have inherited.
class Starter {
 public:
  virtual ~Starter() = default;

  /// The child is a copy of this process, and has the task in its memory: no start message is sent.
  virtual bool copies_this_process() const { return false; }
  /// The CPUs of a child whose settings leave them open; empty: those that it has anyway.
  virtual CpuSet open_cpus() const { return {}; }

  /// Starts the process, or asks for it; without a pid it is there when finish() is done. If this throws, nothing was
  /// started.
  virtual StartedProcess begin(const StartOrder& order) = 0;
  /// Throws StartLost; any other exception of a start that had no process yet means that there is none.
  virtual void finish(StartedProcess& process) = 0;

  /// Readable when collect() would not wait.
  virtual int end_descriptor(const StartedProcess& process) const { return process.process.get(); }
  /// How it ended; nothing if the deadline came first. Once.
  virtual std::optional<ExitStatus> collect(const StartedProcess& process, Deadline) { return reap(process.process); }
};

std::unique_ptr<Starter> make_starter(StartMethod method);

// One for each method.
std::unique_ptr<Starter> make_spawn_starter();
std::unique_ptr<Starter> make_fork_server_starter();
std::unique_ptr<Starter> make_fork_starter();

}  // namespace shoal
