// Checkpoints: a training's state in files, written while it goes on.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <shoal/runtime/options.h>
#include <shoal/workers/checkpoint/checkpoint_parts.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

/// Where checkpoints lie, and how many.
struct CheckpointOptions {
  std::filesystem::path folder;  ///< of this training alone; made if it is not there
  int rank = 0;                  ///< this process's; of a process group it is the group's
  int ranks = 1;                 ///< that write shards, up to 2^20; of a process group it is the group's
  int keep = 3;                  ///< whole steps up to the one just saved that stay; older ones are removed
  int saves_in_flight = 2;       ///< that save_async() has at once; each has a copy of the shard in the shared heap
  /// Of several ranks without a process group: the same on all ranks, another one in each run. Empty: what
  /// environment() says. Shards of different runs never make up one step.
  std::string run_id = {};
  StartMethod start_method = get_start_method();  ///< of the process that writes for save_async()
};

/// Saves and loads a training's state. Each rank writes a file of its own, a shard; a step is there once all ranks'
/// shards are. docs/checkpoints.md has the format.
///
///   shoal::Checkpoints checkpoints({.folder = "run1"}, process_group);
///   const std::int64_t begin = checkpoints.load(parts).value_or(0);
///   for (std::int64_t step = begin + 1; step <= last; ++step) {
///     ...
///     if (step % 1000 == 0) checkpoints.save_async(step, parts);
///     if (checkpoints.save_if_stopped(step, parts)) return;
///   }
///   checkpoints.wait();
///
/// - A shard is written beside its place, waited for until the disk has it, and renamed. Whenever processes or the
///   machine stop, what was saved before is there as it was.
/// - Every byte is covered by a checksum. load() passes over damaged and unfinished steps, with a warning in the log.
/// - A training that has loaded a step and then saves a higher one goes on from there: what was in the folder above that
///   is abandoned, and removed by that save. Without load() or load_step() nothing above the saved step is touched.
/// - If the process that writes for save_async() dies, the next save(), save_async() or wait() says so. The training may
///   go on; the writer is replaced.
///
/// One thread. Not usable in a forked child. The destructor waits for what is in flight; a failure is then only logged.
class Checkpoints {
 public:
  /// For one process, or for ranks that have no process group. Throws std::invalid_argument, SystemError if the folder
  /// cannot be made.
  explicit Checkpoints(const CheckpointOptions& options);
  /// For the ranks of a group: collective, as load() and save_if_stopped() are.
  Checkpoints(const CheckpointOptions& options, c10::intrusive_ptr<c10d::ProcessGroup> process_group);
  ~Checkpoints();

  /// Writes this rank's shard and returns when the disk has it. All ranks save the same steps: a step of which one has no
  /// shard never counts. Nor does a step that ranks of init_process_group()'s group
  /// save after different numbers of its collectives: one has left out a batch then. So no other thread may call collectives of
  /// this group meanwhile. It waits
  /// for no other rank, so it is no collective. Throws SystemError if it cannot be written,
  /// CheckpointNotSaved for an earlier save_async(), std::invalid_argument for a negative step and for what cannot be
  /// saved.
  void save(std::int64_t step, const CheckpointParts& parts);
  /// Copies this rank's shard into the shared heap and returns; another process writes it. All ranks do, as with save().
  /// First waits if as many are in flight as the options allow. Throws OutOfSharedMemory, and what save() throws. The
  /// first call starts the process and touches the memory, so it takes longer.
  void save_async(std::int64_t step, const CheckpointParts& parts);
  /// Returns when all that save_async() began is on disk. Throws CheckpointNotSaved.
  void wait();

  /// Of a group first waits for all ranks, also for those that are in a collective still since another one has had an
  /// exception: who catches what that throws there and loads is waited for.
  /// Loads the highest step that is there, whole, of all ranks, however many they were, and returns its number; nothing
  /// if there is none, or none but damaged ones, of which the log warns: steps() has these, too. Parts that were saved and
  /// are not in the list stay where they are, and the log names them. Throws CheckpointError if it does not fit the parts:
  /// then nothing is changed on that rank; others, whose parts it fits, have loaded it. What a process group's ranks save afterwards is of a run of its own.
  std::optional<std::int64_t> load(const CheckpointParts& parts);
  /// Loads a certain step. Throws CheckpointError if it is not whole.
  void load_step(std::int64_t step, const CheckpointParts& parts);
  /// The steps of which all shards are there, in order. Damage is seen when they are loaded.
  std::vector<std::int64_t> steps() const;

  /// Whether any rank was asked to stop (stop_requested()). If so, has saved `step` and all that was in flight: return
  /// before the grace period ends. Of a process group collective: all ranks stop after the same step.
  bool save_if_stopped(std::int64_t step, const CheckpointParts& parts);

  std::vector<int> writer_pids() const;  ///< of the process that writes for save_async(), if there is one

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
