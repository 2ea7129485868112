#include "train_fashion_mnist/checkpointing.h"

#include <fmt/format.h>
#include <shoal/runtime/stop.h>

#include <utility>

Checkpointing::Checkpointing(const Job& job, int rank, Group group)
    : job_(job),
      rank_(rank),
      group_(std::move(group)),
      vote_(group_),
      stop_(job.stop),
      every_(job.mode == Mode::hogwild || job.settings.join ? 0 : job.settings.checkpoint_every) {}

std::int64_t Checkpointing::load() {
  const auto folder = folder_of_run(job_.settings.checkpoint, job_.settings, job_.mode);
  if (folder.empty()) return 0;
  (void)shoal::stop_requested();  // from now on SIGTERM is noted, and ends no rank
  checkpoints_.emplace(shoal::CheckpointOptions{.folder = folder}, group_);
  const auto step = checkpoints_->load(parts_);
  if (step && rank_ == 0)
    fmt::print(stderr, "{}: goes on from {} after step {}\n", name_of(job_.mode), folder.native(), *step);
  return step.value_or(0);
}

bool Checkpointing::stops_after_step() {
  if (!checkpoints_) return false;
  if (job_.mode != Mode::hogwild) return vote_.stops();
  if (shoal::stop_requested()) stop_.set();  // the others see it after their steps
  return stop_.is_set();
}

void Checkpointing::after_step(std::int64_t step) {
  if (checkpoints_ && every_ > 0 && step % every_ == 0) checkpoints_->save_async(step, parts_);
}

void Checkpointing::after_epoch(std::int64_t step) {
  if (!checkpoints_) return;
  checkpoints_->save_async(step, parts_);
  if (job_.mode == Mode::hogwild) (void)any_of(group_, false);  // nobody trains on before all have copied
}

void Checkpointing::save_and_stop(std::int64_t step) { checkpoints_->save(step, parts_); }

void Checkpointing::finish() {
  if (checkpoints_) checkpoints_->wait();
}
