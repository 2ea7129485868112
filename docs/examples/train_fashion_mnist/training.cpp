#include "train_fashion_mnist/training.h"

#include <shoal/workers/train/process_group.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "train_fashion_mnist/checkpointing.h"
#include "train_fashion_mnist/evaluation.h"
#include "train_fashion_mnist/learner.h"
#include "train_fashion_mnist/loaders.h"
#include "train_fashion_mnist/progress.h"
#include "train_fashion_mnist/shards.h"

namespace {

using Clock = std::chrono::steady_clock;

/// A rank's training, from its checkpoint to its last epoch. Batches is any loader whose batches example_of() takes. One
/// thread.
template <class Batches>
class Training {
 public:
  Training(int rank, const Job& job, const SharedOptimizer& optimizer, std::unique_ptr<Batches> batches)
      : rank_(rank),
        job_(job),
        group_(shoal::init_process_group(job.group, rank)),
        learner_(job_, optimizer, group_),
        batches_(std::move(batches)),
        checkpoints_(job_, rank, group_),
        report_(job_, rank),
        steps_of_epoch_(steps_of_epoch(job.settings, job.mode, job.data.train_size)),
        samples_of_epoch_(samples_of_epoch(job.settings, job.mode, job.data.train_size)) {
    shoal::CheckpointParts& parts = checkpoints_.parts();
    learner_.add_to(parts);
    parts.add(
        "loader", [this] { return place_; },
        [this](const shoal::LoaderState& place) { batches_->load_state_dict(place_ = place); });
    parts.add("progress", progress_);
    parts.add_random_state("random");
  }

  Metrics run() {
    const std::int64_t begun = checkpoints_.load();
    before_ = progress_;
    samples_before_ = std::int64_t(sum_of(group_, double(progress_.samples)));  // all have loaded before anyone trains
    tell_parent();
    report_.begin(begun, steps_of_epoch_, learner_.parameters());
    std::optional<Evaluation> evaluation;
    while (progress_.epoch < job_.settings.epochs) {
      if (train_epoch()) {
        const std::int64_t last = largest_of(group_, step());
        checkpoints_.save_and_stop(last);
        return metrics({}, last);
      }
      const std::int64_t samples = all_samples();  // before the evaluation: hogwild's other ranks may train on after it
      progress_.last_loss = sum_of(group_, progress_.epoch_loss) / sum_of(group_, double(progress_.epoch_samples));
      evaluation = evaluate(learner_, job_.data, group_);
      report_.evaluation(progress_, (progress_.epoch + 1) * steps_of_epoch_, samples, *evaluation);
      progress_.begin_epoch(progress_.epoch + 1);
      checkpoints_.after_epoch(step());
    }
    checkpoints_.finish();
    if (!evaluation) evaluation = evaluate(learner_, job_.data, group_);  // nothing was left to do
    return metrics(evaluation->confusion, -1);
  }

  Metrics profile() {
    tell_parent();
    const Settings& settings = job_.settings;
    const std::string trace = rank_ == 0 ? file_of_run(settings.trace, settings, job_.mode) : std::string();
    const auto profile =
        batches_->profile(settings.profile, [this](auto& batch) { train_on(example_of(batch)); }, {.trace = trace});
    (void)any_of(group_, false);  // ddp: nobody leaves while others step
    Metrics result = metrics({}, -1);
    result.profile = profile.to_string();
    return result;
  }

 private:
  /// The epoch, or what is left of it. Returns whether all ranks stop; then the state is one that can be saved.
  bool train_epoch() {
    continue_clock();
    std::optional<shoal::Join> join;
    if (job_.settings.join && job_.mode == Mode::ddp) {
      std::vector<std::reference_wrapper<shoal::Joinable>> joined{learner_.joinable()};
      if (checkpoints_.votes()) joined.emplace_back(checkpoints_.vote());
      join.emplace(std::move(joined));
    }
    bool stops = false;
    // Not if the checkpoint was of a moment when this rank had no batch left, and others had.
    if (batches_->state_dict().epoch <= progress_.epoch) {
      batches_->set_epoch(progress_.epoch);
      for (auto& batch : *batches_) {
        train_on(example_of(batch));
        place_ = batches_->state_dict();
        if ((stops = checkpoints_.stops_after_step())) break;
        checkpoints_.after_step(step());
      }
      if (!stops) place_ = batches_->state_dict();  // the next epoch's beginning
    }
    if (join) {
      join->finish();
      learner_.take_optimizer_state_of(longest_rank(job_.settings, job_.mode, job_.data.train_size));
    }
    return any_of(group_, stops);  // hogwild: from here on nobody changes the network
  }

  void train_on(const shoal::Example& batch) {
    const double rate = rate_of(job_.settings) * schedule();
    progress_.add(learner_.learn(batch.data, batch.target, rate), batch.target.size(0));
    progress_.seconds = seconds_before_ + std::chrono::duration<double>(Clock::now() - started_).count();
    // Aligned words, each written by one process.
    words()[rank_] = progress_.samples - before_.samples;
    report_.step(progress_, step(), all_samples(), rate);
  }

  /// What the full rate is multiplied by. Ranks in step count steps, which are the same for all; hogwild counts samples.
  double schedule() const {
    const LearningRate& rate = job_.settings.schedule;
    return job_.mode == Mode::hogwild ? rate.at(all_samples(), samples_of_epoch_ * job_.settings.epochs)
                                      : rate.at(step(), steps_of_epoch_ * job_.settings.epochs);
  }

  void continue_clock() {
    started_ = Clock::now();
    seconds_before_ = progress_.seconds;
  }
  /// Steps since the beginning.
  std::int64_t step() const { return progress_.epoch * steps_of_epoch_ + progress_.step; }
  std::int64_t* words() const { return job_.progress.template data_ptr<std::int64_t>(); }
  /// All ranks', since the beginning; those of other ranks a moment ago.
  std::int64_t all_samples() const {
    std::int64_t samples = samples_before_;
    for (int rank = 0; rank < job_.ranks; ++rank) samples += words()[rank];
    return samples;
  }
  void tell_parent() {
    if (rank_ == 0) words()[job_.ranks] = samples_before_;
  }

  Metrics metrics(const at::Tensor& confusion, std::int64_t stopped) const {
    return {.seconds = progress_.seconds - before_.seconds,
            .samples = progress_.samples - before_.samples,
            .loss = progress_.last_loss,
            .confusion = confusion,
            .stopped = stopped,
            .profile = {}};
  }

  const int rank_;
  const Job job_;
  Group group_;
  Learner learner_;
  std::unique_ptr<Batches> batches_;
  Checkpointing checkpoints_;
  Report report_;
  const std::int64_t steps_of_epoch_, samples_of_epoch_;

  Progress progress_, before_;  // now; when this run began
  std::int64_t samples_before_ = 0;
  shoal::LoaderState place_;
  Clock::time_point started_ = Clock::now();
  double seconds_before_ = 0;
};

}  // namespace

std::int64_t warm_up_batches(const Settings& settings) { return 2 * std::max<std::int64_t>(1, settings.workers); }

Metrics train(int rank, const Job& job, const SharedOptimizer& optimizer) {
  // Another format of the data is another loader here.
  const auto with = [&](auto loader) {
    Training training(rank, job, optimizer, std::move(loader));
    return job.settings.profile > 0 ? training.profile() : training.run();
  };
  if (job.settings.data_format == DataFormat::beton) return with(beton_loader(job.data, job.settings, job.mode));
  return with(training_loader(job.data, job.settings, job.mode, rank));
}
