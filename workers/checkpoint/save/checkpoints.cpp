#include <shoal/workers/checkpoint/checkpoints.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/checkpoint/folder/checkpoint_folder.h>
#include <shoal/internal/workers/checkpoint/folder/checkpoint_step.h>
#include <shoal/internal/workers/checkpoint/folder/shard_name.h>
#include <shoal/internal/workers/checkpoint/write/atomic_file.h>
#include <shoal/internal/workers/checkpoint/write/shard_contents.h>
#include <shoal/internal/workers/checkpoint/write/write_shard.h>
#include <shoal/internal/workers/train/backend/collective_process_group.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <shoal/runtime/environment.h>
#include <shoal/runtime/stop.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <shoal/workers/pool.h>
#include <shoal/workers/train/communicator.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace shoal {
namespace {

using detail::CheckpointStep;
using detail::ShardPlace;
using detail::StepFiles;

std::uint64_t random_run() {
  std::random_device random;
  return std::uint64_t(random()) << 32U | random();
}

/// Of ranks that cannot ask each other.
std::uint64_t run_of(const CheckpointOptions& options) {
  if (options.ranks == 1 && options.run_id.empty()) return random_run();
  const Environment launched = environment();
  return options.run_id.empty() ? schema_hash(launched.run_id, std::uint64_t(launched.restart_count))
                                : schema_hash(options.run_id);
}

std::span<std::byte> bytes_of(const at::Tensor& image) {
  return {static_cast<std::byte*>(image.mutable_data_ptr()), image.nbytes()};
}

/// What the writing process runs.
void write_image(const at::Tensor& image, const ShardPlace& place) { detail::write_shard(bytes_of(image), place); }

}  // namespace

struct Checkpoints::State {
  State(const CheckpointOptions& given, c10::intrusive_ptr<c10d::ProcessGroup> group)
      : options(given), process_group(std::move(group)) {
    if (process_group) {
      options.rank = process_group->getRank();
      options.ranks = process_group->getSize();
    }
    std::exception_ptr failure;
    try {
      check_options();
      detail::make_folder(options.folder);
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    // Ranks that go on would wait in what follows for those that do not.
    const int failed = process_group ? last_rank_with(failure != nullptr) : -1;
    if (failure) std::rethrow_exception(failure);
    if (failed >= 0)
      throw Error(fmt::format("checkpoints in '{}' cannot be made on rank {}: its error says why",
                              options.folder.native(), failed));
    run = process_group ? std::uint64_t(agree(std::int64_t(random_run()))) : run_of(options);
  }

  void check_options() const {
    if (options.folder.empty() || options.ranks < 1 || options.ranks > detail::kMostRanks || options.rank < 0 ||
        options.rank >= options.ranks || options.keep < 1 || options.saves_in_flight < 1)
      throw std::invalid_argument(
          fmt::format("checkpoints in '{}' of rank {} of {}, {} kept, {} in flight: a folder is needed, 1 to {} ranks, "
                      "a rank from 0 on and below their number, and at least one of the others",
                      options.folder.native(), options.rank, options.ranks, options.keep, options.saves_in_flight,
                      detail::kMostRanks));
  }

  /// The highest rank that gives true; -1 if none does.
  int last_rank_with(bool here) const {
    std::vector<at::Tensor> last{at::tensor(std::vector<std::int64_t>{here ? options.rank : -1}, at::kLong)};
    c10d::AllreduceOptions maximum;
    maximum.reduceOp = c10d::ReduceOp::MAX;
    process_group->allreduce(last, maximum)->wait();
    return int(last[0].item<std::int64_t>());
  }

  /// Waits until all ranks have come to load(), with their shards written. One that comes after an exception finds others in
  /// collectives of the pass that failed: these are told by that, as often as they have begun one, and then come, too.
  void meet() const {
    constexpr int kMostBegun = 1000;
    for (int tries = 0;; ++tries) try {
        last_rank_with(false);
        return;
      } catch (const CollectiveMismatch&) {
        if (tries == kMostBegun) throw;
      }
  }

  /// Rank 0's number on all ranks.
  std::int64_t agree(std::int64_t number) const {
    std::vector<at::Tensor> sent{at::tensor(std::vector<std::int64_t>{number}, at::kLong)};
    process_group->broadcast(sent, c10d::BroadcastOptions{})->wait();
    return sent[0].item<std::int64_t>();
  }

  /// All ranks save the same steps, so each finds the same number: also one whose save then fails, or that first finds an
  /// earlier one to have failed.
  void note(std::int64_t step) {
    if (step < 0)
      throw std::invalid_argument(fmt::format("a checkpoint of step {}: steps are counted from 0 on", step));
    if (begun && step < *begun) {
      // Gone back: steps that come a second time are not made up of shards of both times.
      run = schema_hash("gone back", run, std::uint64_t(step));
      has_gone_back = true;
    }
    // A step that is saved again is the same one: while some ranks have and others have not, it stays whole.
    if (begun != step || run != run_of_begun) mark_of_begun = mark_of_state();
    run_of_begun = run;
    begun = step;
  }

  /// What all shards of a step say alike. Of a group's ranks also how many collectives went before: ranks that a lost batch
  /// or a failed pass has put a step apart count differently, and their shards are of different states.
  std::uint64_t mark_of_state() const {
    const auto* group = dynamic_cast<CollectiveProcessGroup*>(process_group.get());
    return group ? schema_hash("after collectives", run, group->backend().getSequenceNumberForGroup()) : run;
  }

  /// A copy of this rank's shard as it is now, in a buffer of the heap.
  struct Image {
    at::Tensor buffer;
    std::int64_t bytes;
    at::Tensor used() const { return buffer.narrow(0, 0, bytes); }
  };
  Image copy(std::int64_t step, const CheckpointParts& parts) {
    detail::ShardContents contents(options.rank, options.ranks);
    for (const auto& part : parts.parts()) part->write(contents);
    const auto bytes = std::int64_t(contents.lay_out(step, mark_of_begun));
    at::Tensor buffer;
    const auto fits = std::ranges::find_if(buffers, [&](const at::Tensor& each) { return each.numel() >= bytes; });
    if (fits != buffers.end()) {
      buffer = std::move(*fits);
      buffers.erase(fits);
    } else {
      buffers.clear();  // smaller ones will not be needed again
      const SharedMemoryScope scope;
      buffer = at::empty({bytes}, at::kByte);
    }
    contents.copy_to(bytes_of(buffer).first(std::size_t(bytes)));
    return {std::move(buffer), bytes};
  }
  ShardPlace place(std::int64_t step) const {
    return {.folder = options.folder,
            .step = step,
            .rank = options.rank,
            .ranks = options.ranks,
            .keep = options.keep,
            .abandons_higher = has_gone_back || (loaded && *loaded < step)};
  }

  struct Saving {
    std::int64_t step;
    AsyncResult<void> written;
    at::Tensor buffer;
  };
  /// Waits for the oldest one. Throws CheckpointNotSaved.
  void finish_oldest() {
    Saving oldest = std::move(saving.front());
    saving.pop_front();
    try {
      oldest.written.get();
    } catch (const Error& error) {
      // Its buffer goes with it: a writer that hangs on somewhere may still have it.
      throw CheckpointNotSaved(oldest.step, error.what());
    }
    buffers.push_back(std::move(oldest.buffer));
  }
  void finish_ready() {
    while (!saving.empty() && saving.front().written.ready()) finish_oldest();
  }
  void finish_all() {
    while (!saving.empty()) finish_oldest();
  }

  void finish_and_log() noexcept {
    while (!saving.empty()) try {
        finish_oldest();
      } catch (const std::exception& error) {
        log_error("{}", error.what());
      }
  }

  /// One line about what was saved and nobody asked for.
  void say_left(const CheckpointStep& step, const CheckpointParts& parts) const {
    std::vector<std::string> left = step.parts();
    std::erase_if(left, [&](const std::string& name) {
      return std::ranges::any_of(parts.parts(), [&](const auto& part) { return part->name() == name; });
    });
    if (!left.empty())
      log_warning("the checkpoint of step {} in {} was loaded without its part{} '{}', which this program did not add",
                  step.step(), options.folder.native(), left.size() == 1 ? "" : "s", fmt::join(left, "', '"));
  }

  void load(const StepFiles& files, const CheckpointParts& parts) {
    const CheckpointStep step(files, options.rank, options.ranks);
    std::vector<std::function<void()>> prepared;
    for (const auto& part : parts.parts()) prepared.push_back(part->prepare(step));
    for (const auto& apply : prepared) apply();
    if (options.rank == 0) say_left(step, parts);
    if (begun && files.step < *begun) {
      // What is saved from here on is another future, also where it comes to the step that was saved last.
      run = schema_hash("gone back by loading", run, std::uint64_t(files.step));
      begun.reset();
    }
    loaded = files.step;
  }

  CheckpointOptions options;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  std::uint64_t run;
  std::optional<std::int64_t> begun, loaded;          // the last step that was saved, and the last one that was loaded
  std::uint64_t run_of_begun = 0, mark_of_begun = 0;  // of the last step that was saved, when it was saved first
  bool has_gone_back = false;                         // by saving a lower step than the one before
  std::vector<at::Tensor> buffers;                    // that are not in use
  std::unique_ptr<Pool> pool;                         // of one process, which writes in order
  std::deque<Saving> saving;
};

Checkpoints::Checkpoints(const CheckpointOptions& options) : state_(std::make_unique<State>(options, nullptr)) {}
Checkpoints::Checkpoints(const CheckpointOptions& options, c10::intrusive_ptr<c10d::ProcessGroup> process_group)
    : state_(std::make_unique<State>(options, std::move(process_group))) {}

Checkpoints::~Checkpoints() { state_->finish_and_log(); }

void Checkpoints::save(std::int64_t step, const CheckpointParts& parts) {
  state_->note(step);
  state_->finish_all();
  State::Image image = state_->copy(step, parts);
  detail::write_shard(bytes_of(image.used()), state_->place(step));
  state_->buffers.push_back(std::move(image.buffer));
}

void Checkpoints::save_async(std::int64_t step, const CheckpointParts& parts) {
  state_->note(step);
  state_->finish_ready();
  while (state_->saving.size() >= std::size_t(state_->options.saves_in_flight)) state_->finish_oldest();
  if (!state_->pool)
    state_->pool = std::make_unique<Pool>(PoolOptions{
        .processes = 1, .start_method = state_->options.start_method, .name = "checkpoint", .num_threads = 1});
  State::Image image = state_->copy(step, parts);
  auto written = state_->pool->apply_async(write_image, image.used(), state_->place(step));
  state_->saving.push_back({step, std::move(written), std::move(image.buffer)});
}

void Checkpoints::wait() { state_->finish_all(); }

std::optional<std::int64_t> Checkpoints::load(const CheckpointParts& parts) {
  state_->finish_and_log();
  if (state_->process_group) state_->meet();
  const bool decides = !state_->process_group || state_->options.rank == 0;
  std::optional<StepFiles> newest;
  std::exception_ptr failure;
  if (decides) try {
      newest = detail::newest_whole_step(state_->options.folder);
    } catch (const std::exception&) {  // also of memory: the others wait for an answer
      failure = std::current_exception();
    }
  if (state_->process_group) {
    // Rank 0 looks, for all: each for itself might see another state of the folder.
    constexpr std::int64_t kNone = -1, kFailed = -2;
    const std::int64_t step = state_->agree(failure ? kFailed : newest ? newest->step : kNone);
    const std::int64_t ranks = state_->agree(newest ? newest->ranks : 0);
    // What follows is a run of its own on all ranks, also on one where the step does not fit its parts.
    state_->run = std::uint64_t(state_->agree(std::int64_t(random_run())));
    if (state_->begun && step >= 0 && step < *state_->begun) state_->begun.reset();
    if (failure) std::rethrow_exception(failure);
    if (step == kFailed) throw Error("rank 0 cannot read the folder of checkpoints: its error says why");
    if (step == kNone) return std::nullopt;
    if (!decides) {
      for (StepFiles& files : detail::list_steps(state_->options.folder))
        if (files.step == step && files.ranks == ranks) newest = std::move(files);
      if (!newest || !newest->is_complete())
        throw CheckpointError(state_->options.folder, CheckpointError::kNoOffset, fmt::format("step {}", step),
                              "rank 0 sees it, and this rank does not: is the folder the same on all hosts?");
    }
  }
  if (failure) std::rethrow_exception(failure);
  if (!newest) return std::nullopt;
  state_->load(*newest, parts);
  return newest->step;
}

void Checkpoints::load_step(std::int64_t step, const CheckpointParts& parts) {
  state_->finish_and_log();
  std::exception_ptr failure;
  for (const StepFiles& files : detail::list_steps(state_->options.folder)) {
    if (files.step != step) continue;
    try {
      detail::verify_step(files);
    } catch (const Error&) {  // another number of ranks may have written the same step
      failure = std::current_exception();
      continue;
    }
    return state_->load(files, parts);
  }
  if (failure) std::rethrow_exception(failure);
  const std::vector<std::int64_t> there = steps();
  throw CheckpointError(
      state_->options.folder, CheckpointError::kNoOffset, fmt::format("step {}", step),
      there.empty() ? std::string("there is no checkpoint of it, nor of any other step: is it the right folder?")
                    : fmt::format("there is no checkpoint of it; there are those of {}", fmt::join(there, ", ")));
}

std::vector<std::int64_t> Checkpoints::steps() const {
  std::set<std::int64_t> steps;
  for (const StepFiles& files : detail::list_steps(state_->options.folder))
    if (files.is_complete()) steps.insert(files.step);
  return {steps.begin(), steps.end()};
}

bool Checkpoints::save_if_stopped(std::int64_t step, const CheckpointParts& parts) {
  const bool stops = stop_requested();
  if (!(state_->process_group ? state_->last_rank_with(stops) >= 0 : stops)) return false;
  state_->finish_and_log();  // an earlier one that failed must not keep this one from being written
  save(step, parts);
  return true;
}

std::vector<int> Checkpoints::writer_pids() const { return state_->pool ? state_->pool->pids() : std::vector<int>(); }

}  // namespace shoal
